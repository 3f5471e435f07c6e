// What a program says of AMD targets itself.
module attributes {gpu.container_module} {
  gpu.module @k [#rocdl.target<O = 3, chip = "gfx90a", features = "+xnack", abi = "400", flags = {daz}>,
                 #rocdl.target<chip = "gfx1100", flags = {no_wave64}>] {
    gpu.func @run(%a: !llvm.ptr, %x: f32, %y: f32) kernel attributes {
        known_block_size = array<i32: 128, 2, 1>, rocdl.waves_per_eu = 4 : i32} {
      %d = arith.divf %x, %y : f32
      llvm.store %d, %a : f32, !llvm.ptr
      gpu.return
    }
  }
}
