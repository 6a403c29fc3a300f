# The front door.  `make test` and `make demo` are all a newcomer needs; CMake does the work.
#
#   make            build the library and the program into build/
#   make deps       install what is missing, with apt
#   make demo       build, cluster the bundled sample, print NMI, ACC and ARI, write demo/report.html
#   make test       build, run every test that needs no GPU
#   make test-long  the slow ones too: sanitizers over everything, reports in a browser,
#                   ranks under mpirun, fuzzing
#   make test-cuda  the tests that need an NVIDIA GPU
#   make bench      measure this machine
#   make cuda       build with the CUDA backend into build-cuda/ (needs nvcc and cuDNN 9)
#   make install    install into PREFIX (/usr/local)
#   make format     put the code into its format;  make check-format only looks
#   make clean      remove everything that was built

PREFIX ?= /usr/local
JOBS   ?= $(shell nproc)
sources = $(shell find include src cli fuzz -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh')

all: build/built

# Configures a preset where that has not been done.
build%/build.ninja: CMakeLists.txt CMakePresets.json
	@cmake --preset $(or $(patsubst -%,%,$*),cpu) >/dev/null
	@touch $@
build/build.ninja: CMakeLists.txt CMakePresets.json | deps
	@cmake --preset cpu >/dev/null
	@touch $@

.PHONY: all deps demo test test-long test-cuda bench cuda install format check-format clean build/built

build/built: build/build.ninja
	@cmake --build build -j $(JOBS)

deps:
	@scripts/deps.sh

# K-means on pixels, then training: the sample's scores, and demo/report.html to look at.
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

# DESTDIR=... puts a staged installation elsewhere; the loader's cache is told of a real one.
install: build/built
	@cmake --install build --prefix $(PREFIX) | grep -v '^-- Up-to-date'
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi

format:
	clang-format -i $(sources)

check-format:
	@clang-format --dry-run -Werror $(sources)

clean:
	rm -rf build build-*
