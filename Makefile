.PHONY: try test fuzz stress bench foreign

try:
	sh docs/try.sh

test:
	sh tests/run.sh

# Without an end. An input that breaks a reader goes to the seeds; later runs of the tests read it.
fuzz:
	sh toolchain/setup.sh test
	mkdir -p build/fuzz
	.venv/bin/python tests/fuzz/readers.py -artifact_prefix=tests/fuzz/seeds/ build/fuzz tests/fuzz/seeds

# What the tests do a few times, a hundred times as often, from fixed seeds.
stress:
	sh toolchain/setup.sh test
	MLIR_OFFLOAD_STRESS=100 .venv/bin/python -m pytest -n 2 -m soak

bench:
	sh toolchain/setup.sh test
	.venv/bin/python tests/bench/driver.py
	.venv/bin/python tests/bench/cpu_kernels.py
	.venv/bin/python tests/bench/gpu_code.py
	.venv/bin/python tests/bench/package.py
	.venv/bin/python tests/bench/cache.py
	.venv/bin/python tests/bench/own_cost.py
	.venv/bin/python tests/bench/inspection.py
	.venv/bin/python tests/bench/reading.py
	.venv/bin/python tests/bench/build.py
	.venv/bin/python tests/bench/scale.py

foreign:
	sh toolchain/setup.sh test
	.venv/bin/python tests/foreign/run.py --llvm 22
	.venv/bin/python tests/foreign/run.py --llvm 19
	.venv/bin/python tests/foreign/fragments.py
	.venv/bin/python tests/foreign/roundtrip.py --llvm 22
	.venv/bin/python tests/foreign/corpus.py
	.venv/bin/python tests/foreign/links.py
	.venv/bin/python tests/foreign/plugin.py
