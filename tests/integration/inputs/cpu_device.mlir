// Kernels whose threads meet at barriers, in loops, and in subgroups.
module attributes {gpu.container_module} {
  gpu.module @device {
    // Inclusive scan of a block after Hillis and Steele: the distance doubles from turn to turn.
    gpu.func @scan(%data: memref<?xi32>)
        workgroup(%sums: memref<1024xi32, #gpu.address_space<workgroup>>) kernel {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %t = gpu.thread_id x
      %b = gpu.block_id x
      %n = gpu.block_dim x
      %base = arith.muli %b, %n : index
      %i = arith.addi %base, %t : index
      %own = memref.load %data[%i] : memref<?xi32>
      memref.store %own, %sums[%t] : memref<1024xi32, #gpu.address_space<workgroup>>
      gpu.barrier
      cf.br ^head(%c1, %own : index, i32)
    ^head(%step: index, %sum: i32):
      %more = arith.cmpi ult, %step, %n : index
      cf.cond_br %more, ^body, ^end
    ^body:
      %reaches = arith.cmpi uge, %t, %step : index
      %next = scf.if %reaches -> (i32) {
        %from = arith.subi %t, %step : index
        %other = memref.load %sums[%from] : memref<1024xi32, #gpu.address_space<workgroup>>
        %both = arith.addi %sum, %other : i32
        scf.yield %both : i32
      } else {
        scf.yield %sum : i32
      }
      gpu.barrier
      memref.store %next, %sums[%t] : memref<1024xi32, #gpu.address_space<workgroup>>
      gpu.barrier
      %double = arith.addi %step, %step : index
      cf.br ^head(%double, %next : index, i32)
    ^end:
      memref.store %sum, %data[%i] : memref<?xi32>
      gpu.return
    }

    // Turns until no thread of the block has changed anything: the condition comes from memory.
    gpu.func @settle(%data: memref<?xi32>, %turns: memref<?xi32>)
        workgroup(%flag: memref<1xi32, #gpu.address_space<workgroup>>,
                  %copy: memref<1024xi32, #gpu.address_space<workgroup>>) kernel {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %zero = arith.constant 0 : i32
      %one = arith.constant 1 : i32
      %t = gpu.thread_id x
      %b = gpu.block_id x
      %n = gpu.block_dim x
      %base = arith.muli %b, %n : index
      %i = arith.addi %base, %t : index
      %own = memref.load %data[%i] : memref<?xi32>
      cf.br ^head(%own, %zero : i32, i32)
    ^head(%value: i32, %turn: i32):
      memref.store %value, %copy[%t] : memref<1024xi32, #gpu.address_space<workgroup>>
      %first = arith.cmpi eq, %t, %c0 : index
      scf.if %first {
        memref.store %zero, %flag[%c0] : memref<1xi32, #gpu.address_space<workgroup>>
      }
      gpu.barrier
      %after = arith.addi %t, %c1 : index
      %inside = arith.cmpi ult, %after, %n : index
      %new = scf.if %inside -> (i32) {
        %right = memref.load %copy[%after] : memref<1024xi32, #gpu.address_space<workgroup>>
        %least = arith.minsi %value, %right : i32
        %differs = arith.cmpi ne, %least, %value : i32
        scf.if %differs {
          memref.store %one, %flag[%c0] : memref<1xi32, #gpu.address_space<workgroup>>
        }
        scf.yield %least : i32
      } else {
        scf.yield %value : i32
      }
      gpu.barrier
      %changed = memref.load %flag[%c0] : memref<1xi32, #gpu.address_space<workgroup>>
      gpu.barrier
      %next = arith.addi %turn, %one : i32
      %again = arith.cmpi ne, %changed, %zero : i32
      cf.cond_br %again, ^head(%new, %next : i32, i32), ^end
    ^end:
      memref.store %new, %data[%i] : memref<?xi32>
      memref.store %next, %turns[%i] : memref<?xi32>
      gpu.return
    }

    func.func private @exchange(%line: memref<1024xi32, #gpu.address_space<workgroup>>,
                                %t: index, %other: index, %value: i32) -> i32 {
      memref.store %value, %line[%t] : memref<1024xi32, #gpu.address_space<workgroup>>
      gpu.barrier
      %got = memref.load %line[%other] : memref<1024xi32, #gpu.address_space<workgroup>>
      gpu.barrier
      return %got : i32
    }

    // Barriers in nested loops, under a condition of the block, and in a function; private arrays.
    gpu.func @nested(%data: memref<?xi32>, %outer: index, %inner: index, %odd: i1)
        workgroup(%line: memref<1024xi32, #gpu.address_space<workgroup>>)
        private(%own: memref<8xi32, #gpu.address_space<private>>) kernel {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c7 = arith.constant 7 : index
      %three = arith.constant 3 : i32
      %t = gpu.thread_id x
      %ty = gpu.thread_id y
      %nx = gpu.block_dim x
      %ny = gpu.block_dim y
      %b = gpu.block_id x
      %row = arith.muli %ty, %nx : index
      %linear = arith.addi %row, %t : index
      %n = arith.muli %nx, %ny : index
      %base = arith.muli %b, %n : index
      %i = arith.addi %base, %linear : index
      %start = memref.load %data[%i] : memref<?xi32>
      scf.for %k = %c0 to %c7 step %c1 {
        %k32 = arith.index_cast %k : index to i32
        %fill = arith.addi %start, %k32 : i32
        memref.store %fill, %own[%k] : memref<8xi32, #gpu.address_space<private>>
      }
      %result = scf.for %a = %c0 to %outer step %c1 iter_args(%x = %start) -> (i32) {
        %next = arith.addi %linear, %c1 : index
        %other = arith.remui %next, %n : index
        %y = func.call @exchange(%line, %linear, %other, %x)
            : (memref<1024xi32, #gpu.address_space<workgroup>>, index, index, i32) -> i32
        %z = scf.for %c = %c0 to %inner step %c1 iter_args(%w = %y) -> (i32) {
          %slot0 = arith.addi %c, %linear : index
          %slot = arith.andi %slot0, %c7 : index
          memref.store %w, %own[%slot] : memref<8xi32, #gpu.address_space<private>>
          memref.store %w, %line[%linear] : memref<1024xi32, #gpu.address_space<workgroup>>
          gpu.barrier
          %left = memref.load %line[%other] : memref<1024xi32, #gpu.address_space<workgroup>>
          %back = arith.andi %linear, %c7 : index
          %kept = memref.load %own[%back] : memref<8xi32, #gpu.address_space<private>>
          gpu.barrier
          %sum0 = arith.addi %left, %kept : i32
          %sum = arith.addi %sum0, %w : i32
          scf.yield %sum : i32
        }
        %v = scf.if %odd -> (i32) {
          memref.store %z, %line[%linear] : memref<1024xi32, #gpu.address_space<workgroup>>
          gpu.barrier
          %far = memref.load %line[%other] : memref<1024xi32, #gpu.address_space<workgroup>>
          gpu.barrier
          %mixed = arith.xori %far, %z : i32
          scf.yield %mixed : i32
        } else {
          %times = arith.muli %z, %three : i32
          scf.yield %times : i32
        }
        scf.yield %v : i32
      }
      memref.store %result, %data[%i] : memref<?xi32>
      gpu.return
    }

    gpu.func @total(%data: memref<?xi32>, %out: memref<?xi32>) kernel {
      %t = gpu.thread_id x
      %ty = gpu.thread_id y
      %nx = gpu.block_dim x
      %row = arith.muli %ty, %nx : index
      %linear = arith.addi %row, %t : index
      %own = memref.load %data[%linear] : memref<?xi32>
      %sum = gpu.all_reduce add %own uniform {} : (i32) -> i32
      memref.store %sum, %out[%linear] : memref<?xi32>
      gpu.return
    }

    // Only the odd lanes shuffle in one place, only the even ones in the other.
    gpu.func @divergent(%data: memref<?xi32>, %valid: memref<?xi32>) kernel {
      %c1 = arith.constant 1 : index
      %c0 = arith.constant 0 : index
      %two = arith.constant 2 : i32
      %width = arith.constant 32 : i32
      %t = gpu.thread_id x
      %own = memref.load %data[%t] : memref<?xi32>
      %bit = arith.andi %t, %c1 : index
      %odd = arith.cmpi ne, %bit, %c0 : index
      %got, %ok = scf.if %odd -> (i32, i1) {
        %a, %p = gpu.shuffle xor %own, %two, %width : i32
        scf.yield %a, %p : i32, i1
      } else {
        %a, %p = gpu.shuffle down %own, %two, %width : i32
        scf.yield %a, %p : i32, i1
      }
      memref.store %got, %data[%t] : memref<?xi32>
      %ok32 = arith.extui %ok : i1 to i32
      memref.store %ok32, %valid[%t] : memref<?xi32>
      gpu.return
    }

    // Three masks of each thread: at once, in one of two branches, and after some have returned.
    gpu.func @active(%masks: memref<?xi32>) kernel {
      %c1 = arith.constant 1 : index
      %c2 = arith.constant 2 : index
      %c3 = arith.constant 3 : index
      %limit = arith.constant 20 : index
      %t = gpu.thread_id x
      %i = arith.muli %t, %c3 : index
      %all = llvm.call_intrinsic "llvm.nvvm.activemask"() : () -> i32
      memref.store %all, %masks[%i] : memref<?xi32>
      %two = arith.remui %t, %c2 : index
      %odd = arith.cmpi eq, %two, %c1 : index
      %half = scf.if %odd -> (i32) {
        %here = llvm.call_intrinsic "llvm.nvvm.activemask"() : () -> i32
        scf.yield %here : i32
      } else {
        %here = llvm.inline_asm has_side_effects "activemask.b32 $0;", "=r" : () -> i32
        scf.yield %here : i32
      }
      %second = arith.addi %i, %c1 : index
      memref.store %half, %masks[%second] : memref<?xi32>
      %ends = arith.cmpi uge, %t, %limit : index
      cf.cond_br %ends, ^end, ^more
    ^more:
      %left = llvm.call_intrinsic "llvm.nvvm.activemask"() : () -> i32
      %third = arith.addi %i, %c2 : index
      memref.store %left, %masks[%third] : memref<?xi32>
      gpu.return
    ^end:
      gpu.return
    }

    gpu.func @count(%bins: memref<?xi32>, %sum: memref<?xf32>) kernel {
      %c0 = arith.constant 0 : index
      %c7 = arith.constant 7 : index
      %one = arith.constant 1 : i32
      %half = arith.constant 0.5 : f32
      %t = gpu.thread_id x
      %bin = arith.andi %t, %c7 : index
      %a = memref.atomic_rmw addi %one, %bins[%bin] : (i32, memref<?xi32>) -> i32
      %b = memref.atomic_rmw addf %half, %sum[%c0] : (f32, memref<?xf32>) -> f32
      gpu.return
    }

    gpu.func @flip(%data: memref<?xf64>) kernel {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %t = gpu.thread_id x
      %n = gpu.block_dim x
      %shared = gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
      %line = memref.view %shared[%c0][%n] : memref<?xi8, #gpu.address_space<workgroup>>
          to memref<?xf64, #gpu.address_space<workgroup>>
      %own = memref.load %data[%t] : memref<?xf64>
      %exp = math.exp %own : f64
      memref.store %exp, %line[%t] : memref<?xf64, #gpu.address_space<workgroup>>
      gpu.barrier
      %last = arith.subi %n, %c1 : index
      %other = arith.subi %last, %t : index
      %got = memref.load %line[%other] : memref<?xf64, #gpu.address_space<workgroup>>
      memref.store %got, %data[%t] : memref<?xf64>
      gpu.return
    }

    // Inner points of a grid only: four conditions in one.
    gpu.func @stencil(%in: memref<?xi32>, %out: memref<?xi32>, %width: index, %height: index) kernel {
      %c1 = arith.constant 1 : index
      %tx = gpu.thread_id x
      %ty = gpu.thread_id y
      %bx = gpu.block_id x
      %by = gpu.block_id y
      %nx = gpu.block_dim x
      %ny = gpu.block_dim y
      %x0 = arith.muli %bx, %nx : index
      %x = arith.addi %x0, %tx : index
      %y0 = arith.muli %by, %ny : index
      %y = arith.addi %y0, %ty : index
      %lastx = arith.subi %width, %c1 : index
      %lasty = arith.subi %height, %c1 : index
      %p = arith.cmpi sge, %x, %c1 : index
      %q = arith.cmpi slt, %x, %lastx : index
      %r = arith.cmpi sge, %y, %c1 : index
      %s = arith.cmpi slt, %y, %lasty : index
      %pq = arith.andi %p, %q : i1
      %rs = arith.andi %r, %s : i1
      %all = arith.andi %pq, %rs : i1
      scf.if %all {
        %row = arith.muli %y, %width : index
        %at = arith.addi %row, %x : index
        %left = arith.subi %at, %c1 : index
        %right = arith.addi %at, %c1 : index
        %up = arith.subi %at, %width : index
        %down = arith.addi %at, %width : index
        %a = memref.load %in[%left] : memref<?xi32>
        %b = memref.load %in[%right] : memref<?xi32>
        %c = memref.load %in[%up] : memref<?xi32>
        %d = memref.load %in[%down] : memref<?xi32>
        %ab = arith.addi %a, %b : i32
        %cd = arith.addi %c, %d : i32
        %sum = arith.addi %ab, %cd : i32
        memref.store %sum, %out[%at] : memref<?xi32>
      }
      gpu.return
    }

    gpu.func @talk(%data: memref<?xi32>) kernel {
      %t = gpu.thread_id x
      %own = memref.load %data[%t] : memref<?xi32>
      %half = arith.constant 0.5 : f32
      gpu.printf "%d is %lld, %5.2f %%\n", %own, %t, %half : i32, index, f32
      gpu.return
    }
  }
}
