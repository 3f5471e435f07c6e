.PHONY: try test bench

try:
	sh docs/try.sh

test:
	sh tests/run.sh

bench:
	sh toolchain/setup.sh test
	.venv/bin/python tests/bench/driver.py
	.venv/bin/python tests/bench/cpu_kernels.py
	.venv/bin/python tests/bench/package.py
	.venv/bin/python tests/bench/cache.py
	.venv/bin/python tests/bench/own_cost.py
	.venv/bin/python tests/bench/inspection.py
	.venv/bin/python tests/bench/build.py
