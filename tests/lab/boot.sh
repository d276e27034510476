#!/bin/bash
# shellcheck disable=SC2154 # lab_*: exported by init or its unit, from the command line of the kernel
# The lab host after its root is there: state directories of its own, and shells on the ports lab.shell.N, one line
# "ID COMMAND" in, the command's output and a line "\036ID STATUS" out.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
ulimit -l unlimited

# state SOURCE: what a host remembers lives below SOURCE; nothing of this machine's own is seen
state() {
	local dir
	for dir in var/lib/vgpumgr etc/vgpumgr var/lib/libvirt etc/libvirt etc/mdevctl.d var/cache/libvirt var/log/libvirt; do
		mkdir -p "$1/$dir" "/$dir"
		mount --bind "$1/$dir" "/$dir"
	done
	mkdir -p /etc/mdevctl.d/scripts.d/{callouts,notifiers}
	echo 'auth_unix_rw = "none"' >/etc/libvirt/libvirtd.conf
	printf '%s\n' 'user = "root"' 'group = "root"' 'remember_owner = 0' \
		'stdio_handler = "file"' 'cgroup_controllers = [ ]' 'namespaces = [ ]' >/etc/libvirt/qemu.conf
}
# disk: the one that outlives a power cut
disk() {
	modprobe -a virtio_blk ext4
	mkdir -p /run/state /run/disks
	until [ -e /run/disks/state ]; do
		for f in /sys/block/vd*; do ln -sf "/dev/${f##*/}" "/run/disks/$(<"$f/serial")"; done
	done
	mount /run/disks/state /run/state || echo "lab: cannot mount the disk" >/dev/console
	state /run/state
}
# with systemd nothing outlives it: what packages install is in the overlay
[ "$lab_init" = systemd ] || disk

link_ports() {
	local f name
	mkdir -p /dev/virtio-ports
	for f in /sys/class/virtio-ports/*; do
		read -r name <"$f/name" && ln -sf "/dev/${f##*/}" "/dev/virtio-ports/$name"
	done
}
until [ -e /dev/virtio-ports/lab.shell.2 ]; do
	link_ports
	sleep 0.1
done

# A port opens once only: a pipe stands between, so that commands may open /dev/stderr. A port that nobody listens on
# reads as ended.
serve() {
	mkfifo "/run/shell.$1" "/run/idle.$1"
	exec 3<>"/dev/virtio-ports/lab.shell.$1" 4<>"/run/shell.$1" 5<>"/run/idle.$1"
	cat <&4 >&3 &
	printf '\036ready 0\n' >&4
	while :; do
		# not sleep: to start a program ten times a second is half of the processor under emulation
		read -r id command <&3 || { read -r -t 0.1 _ <&5; continue; }
		(exec 3>&- 5>&- && eval "$command") >&4 2>&1 4>&- </dev/null
		printf '\036%s %s\n' "$id" "$?" >&4
	done
}
for n in 0 1 2; do serve $n & done
cd "$lab_root" || exit
# with systemd there is what packages have installed
[ "$lab_init" = systemd ] ||
	"$lab_python" -m tests.lab.server /dev/virtio-ports/lab.vgpumgr.{0,1} >/out/server.log 2>&1 </dev/null &
while :; do wait; sleep 1; done
