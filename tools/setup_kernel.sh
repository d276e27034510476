# shellcheck shell=bash
# Debian's stock kernel for the guests and the lab host of the tests: unpacked into the cache, never installed.

# shellcheck disable=SC2154 # cache: see setup.sh

# what the lab host loads, in no order; those of guests are in guest_modules
lab_modules=(
	virtio_pci virtio_console virtio_blk 9pnet_virtio 9p overlay ext4 loop fuse crc32c_generic
	vfio-pci vfio_iommu_type1 mdev pci-stub nvme e1000e bochs xhci_pci vhost_vsock kvm-amd
)
guest_modules=(virtio_pci virtio_console)
# compiled from Debian's kernel source, which is large: for the lab host alone
sample_modules=(mtty mdpy mbochs)

setup_kernel() { setup_debian; locked kernel install_kernel; export VGPUMGR_KERNEL=$cache/kernel; }
install_kernel() {
	local version tmp key
	key="lab: ${lab_modules[*]}; guests: ${guest_modules[*]}"
	[ "$(cat "$cache/kernel/stamp" 2>/dev/null)" != "$key" ] || return 0
	version=$(newest_kernel)
	if [ -z "$version" ]; then
		apt-get -qq update >"$cache/apt.log" 2>&1 || { cat "$cache/apt.log" >&2; return 1; }
		version=$(newest_kernel)
	fi
	say "unpacking Debian's kernel $version for guests and the lab host"
	tmp=$(mktemp -d "$cache/tmp.XXXXXX")
	unpack_kernel "$version" "$tmp" >"$cache/kernel.log" 2>&1 || { cat "$cache/kernel.log" >&2; return 1; }
	printf '%s\n' "$version" >"$tmp/version"
	printf '%s\n' "$key" >"$tmp/stamp"
	rm -rf "$cache/kernel"
	mv "$tmp" "$cache/kernel"
}

# what only the lab host needs beyond that
setup_lab() { setup_kernel; locked kernel install_samples; }
install_samples() {
	local version tmp dir=$cache/kernel
	version=$(cat "$dir/version")
	[ "$(cat "$dir/samples.stamp" 2>/dev/null)" != "${sample_modules[*]}" ] || return 0
	say "compiling the kernel's sample mediated devices for the lab host"
	tmp=$(mktemp -d "$cache/tmp.XXXXXX")
	compile_samples "$version" "$tmp" >"$cache/samples.log" 2>&1 || { cat "$cache/samples.log" >&2; return 1; }
	install -D -m 644 -t "$dir/lib/modules/$version/extra" "$tmp/samples/vfio-mdev"/*.ko
	depmod -b "$dir" "$version"
	rm -rf "$tmp"
	printf '%s\n' "${sample_modules[*]}" >"$dir/samples.stamp"
}

newest_kernel() { apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/.*Depends: linux-image-//p' | head -n 1; }

# unpack_kernel VERSION DIRECTORY: vmlinux, guest-modules/ and lib/modules/VERSION/
unpack_kernel() {
	local version=$1 dir=$2 work=$2/work
	mkdir "$work"
	(cd "$work" && apt-get -qq -o APT::Sandbox::User=root download "linux-image-$version") || return 1
	dpkg-deb -x "$work"/linux-image-*.deb "$work" || return 1
	# from Debian 13 on
	[ -e "$work/lib" ] || ln -s usr/lib "$work/lib"
	depmod -b "$work" "$version" || return 1
	# QEMU starts an uncompressed kernel directly: under TCG that saves seconds of decompression
	extract_vmlinux "$work/boot/vmlinuz-$version" >"$dir/vmlinux" || return 1
	mkdir "$dir/guest-modules"
	local n=10 m
	list_modules "$work" "$version" "${guest_modules[@]}" |
		while read -r m; do copy_module "$m" "$dir/guest-modules/$((n++))-${m##*/}"; done
	list_modules "$work" "$version" "${lab_modules[@]}" |
		while read -r m; do copy_module "$m" "$dir/lib/modules/${m#*/lib/modules/}"; done
	cp "$work/lib/modules/$version"/modules.{order,builtin,builtin.modinfo} "$dir/lib/modules/$version/"
	depmod -b "$dir" "$version"
	rm -rf "$work"
}

# extract_vmlinux FILE: the kernel inside a compressed one, to standard output. Debian 12 compresses it with xz, 13 with zstd.
extract_vmlinux() {
	local at
	at=$(find_bytes $'\xfd7zXZ' "$1")
	if [ -n "$at" ]; then
		xz -dc --single-stream < <(tail -c "+$((at + 1))" "$1")
		return
	fi
	at=$(find_bytes $'\x28\xb5\x2f\xfd' "$1")
	[ -n "$at" ] || { say "no way to decompress ${1##*/}"; return 1; }
	# zstd complains of what follows its frame, and has written the kernel by then
	zstd -qdc < <(tail -c "+$((at + 1))" "$1") 2>/dev/null || :
}

# find_bytes BYTES FILE: where they are first
find_bytes() { LC_ALL=C grep -aboF -m 1 "$1" "$2" | cut -d: -f1 | head -n 1 || :; }

# copy_module FILE TARGET: uncompressed, as busybox loads it
copy_module() {
	mkdir -p "${2%/*}"
	case $1 in
	*.xz) xz -dc "$1" >"${2%.xz}" ;;
	*) cp "$1" "$2" ;;
	esac
}

# list_modules ROOT VERSION MODULE...: the files of the modules and of what they need, in loading order
list_modules() {
	local root=$1 version=$2 m
	shift 2
	for m; do modprobe -d "$root" -S "$version" --show-depends "$m"; done |
		awk '$1 == "insmod" && !seen[$2]++ { print $2 }'
}

# compile_samples VERSION DIRECTORY: the kernel's own sample drivers of mediated devices, in DIRECTORY/samples/vfio-mdev
compile_samples() {
	local version=$1 dir=$2 source=linux-source-$(cut -d. -f1,2 <<<"$1") sample=$2/samples/vfio-mdev
	apt_get install -y "linux-headers-$version" || return 1
	(cd "$dir" && apt-get -qq -o APT::Sandbox::User=root download "$source") || return 1
	dpkg-deb --fsys-tarfile "$dir/$source"_*.deb | tar -xO "./usr/src/$source.tar.xz" |
		tar -C "$dir" -xJ --strip-components=1 "$source/samples/vfio-mdev" || return 1
	rm -f "$sample/Kbuild"
	echo "obj-m := ${sample_modules[*]/%/.o}" >"$sample/Makefile"
	make -s -C "/usr/src/linux-headers-$version" M="$sample" modules
}
