module attributes {gpu.container_module} {
  gpu.module @arithmetic {
    func.func @twice(%x: f32) -> f32 {
      %y = arith.addf %x, %x : f32
      return %y : f32
    }
    func.func private @hidden(%x: f32) -> f32 {
      return %x : f32
    }
  }
}
