#!/usr/bin/env bash
# container.sh GROUP DIRECTORY FOLDER...: systemd as the first process of namespaces and of a control group of its own,
# until it is killed.
#
# Its root is this machine's own under an overlay in memory, less this machine's own units; FOLDERs are seen as they are,
# DIRECTORY/out as /out. As container managers have it, /sys and /proc/sys cannot be written, and /dev has no devices but
# the usual ones and FUSE: what is in here cannot change the machine below.
set -euo pipefail

mount_api() {
	local f name
	mount -t proc proc proc
	mount --bind proc/sys proc/sys
	mount -o remount,bind,ro proc/sys
	mount -t sysfs sys sys
	mount -o remount,bind,ro sys
	# one PCI function may be written: where the sandbox of the daemon is tried, it stands in for a GPU
	name=$(readlink -f sys/bus/pci/devices/0000:00:00.0)
	name=${name#"$PWD/"}
	if [ -d "$name" ]; then
		mount -t sysfs sys media
		mount --bind "media/${name#sys/}" "$name"
		umount media
	fi
	mount -t cgroup2 cgroup2 sys/fs/cgroup
	mount -t tmpfs -o mode=755 tmpfs run
	mount -t tmpfs -o mode=755 tmpfs dev
	mkdir dev/pts dev/shm
	mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
	mount -t tmpfs -o mode=1777 tmpfs dev/shm
	for f in null zero full random urandom tty fuse kmsg; do
		[ -e "/dev/$f" ] || continue
		touch "dev/$f"
		mount --bind "/dev/$f" "dev/$f"
	done
	ln -s pts/ptmx dev/ptmx
	for f in fd:fd stdin:fd/0 stdout:fd/1 stderr:fd/2; do ln -s "/proc/self/${f#*:}" "dev/${f%:*}"; done
}

# as Debian installs it, but for what is this machine's own
leave_out() {
	rm -rf etc/systemd/system/* etc/vgpumgr var/lib/vgpumgr usr/sbin/policy-rc.d etc/libvirt/qemu/* etc/mdevctl.d/* \
		etc/fstab var/log/journal
	local unit
	for unit in postgresql.service getty.target console-getty.service sys-kernel-debug.mount sys-kernel-tracing.mount; do
		ln -s /dev/null "etc/systemd/system/$unit"
	done
	# it would clear this machine's /tmp of all, file by file, in the overlay
	mkdir -p etc/tmpfiles.d
	for unit in tmp x11 systemd-tmp; do ln -sf /dev/null "etc/tmpfiles.d/$unit.conf"; done
}

enter_container() {
	local directory=$1 folder
	shift
	mount --make-rprivate /
	mkdir "$directory/rw" "$directory/root"
	mount -t tmpfs tmpfs "$directory/rw"
	mkdir "$directory/rw/upper" "$directory/rw/work"
	mount -t overlay -o "lowerdir=/,upperdir=$directory/rw/upper,workdir=$directory/rw/work" overlay "$directory/root"
	cd "$directory/root"
	leave_out
	for folder; do
		mkdir -p ".$folder"
		mount --bind "$folder" ".$folder"
		mount -o remount,bind,ro ".$folder"
	done
	mkdir -p out
	mount --bind "$directory/out" out
	mount_api
	# what is written in the container, for who wants to see all of it
	mkdir run/written old
	mount --move "$directory/rw" run/written
	pivot_root . old
	umount -l /old
	rmdir /old
	ip link set lo up
	hostname container
	exec env -i container=vgpumgr PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		/lib/systemd/systemd --unit=multi-user.target systemd.show_status=no </dev/null
}

if [ "$1" = --inside ]; then
	enter_container "${@:2}"
fi
mkdir "$1"
echo $$ >"$1/cgroup.procs"
shift
exec unshare --mount --pid --uts --ipc --cgroup --net --fork --kill-child bash "$0" --inside "$@"
