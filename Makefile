# The entry point: `make demo` and `make test` are all a newcomer needs.  CMake does the work.
#
#   make            build the library and the program into build/
#   make deps       install missing packages with apt
#   make demo       build, cluster the bundled sample, print NMI, ACC and ARI, write demo/report.html
#   make test       build, run every test that needs no GPU
#   make test-long  also run the slow tests: sanitizers over everything, failed calls, fuzzing,
#                   reports in a browser, ranks under mpirun
#   make test-cuda  run the tests that need an NVIDIA GPU (scripts/faults-cuda.sh goes further)
#   make bench      measure this machine
#   make cuda       build with the CUDA backend into build-cuda/ (needs nvcc and cuDNN 9)
#   make install    install into PREFIX (/usr/local)
#   make format     format the code; make check-format only checks
#   make clean      remove all builds
#   make help       print this list

PREFIX ?= /usr/local
JOBS   ?= $(shell nproc)
sources = $(shell find include src cli fuzz -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh')

all: build/built

# Configures a preset if that has not been done.
build%/build.ninja: CMakeLists.txt CMakePresets.json
	@cmake --preset $(or $(patsubst -%,%,$*),cpu) >/dev/null
	@touch $@
build/build.ninja: CMakeLists.txt CMakePresets.json | deps
	@cmake --preset cpu >/dev/null
	@touch $@

.PHONY: all help deps demo test test-long test-cuda bench cuda install format check-format clean build/built

build/built: build/build.ninja
	@cmake --build build -j $(JOBS)

help:
	@sed -n "s/^#   //p" Makefile

deps:
	@scripts/deps.sh

# k-means on pixels, then training: scores on the sample, and demo/report.html for the browser.
demo: build/built
	@scripts/demo.sh

test: build/built
	@ctest --test-dir build --output-on-failure -j $(JOBS)

test-long: test
	@scripts/test-long.sh

bench: build/built
	build/conr bench ops

cuda: deps
	@cmake --preset cuda >/dev/null
	@cmake --build build-cuda -j $(JOBS)

test-cuda: cuda
	@ctest --test-dir build-cuda --output-on-failure -L cuda

# DESTDIR=... stages the installation elsewhere; only a real one updates the cache of the loader.
install: build/built
	@cmake --install build --prefix $(PREFIX) | grep -v '^-- Up-to-date'
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi

format:
	clang-format -i $(sources)

check-format:
	@clang-format --dry-run -Werror $(sources)

clean:
	rm -rf build build-*
