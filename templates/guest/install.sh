#!/bin/sh
# Installs the vgpumgr guest package: run as root from the unpacked archive or the mounted image, in the VM or in a chroot
# of its image (virt-customize, packer), where the agent then starts at the first boot.
set -eu
cd "$(dirname "$0")"
[ "$(id -u)" = 0 ] || { echo "install.sh: run as root" >&2; exit 1; }
unit=vgpumgr-guestd.service
wants=/etc/systemd/system/multi-user.target.wants
systemd=
for file in /usr/lib/systemd/systemd /lib/systemd/systemd; do
	[ ! -e "$file" ] || systemd=$file
done
# put FILE MODE: root's, whoever unpacked it; programs that run keep the file that they have
put() {
	mkdir -p "/${1%/*}"
	cp "$1" "/$1.vgpumgr-new"
	chmod "$2" "/$1.vgpumgr-new"
	mv -f "/$1.vgpumgr-new" "/$1"
}
for file in usr/lib/vgpumgr/* usr/bin/* usr/sbin/*; do
	put "$file" 755
done
for file in usr/lib/systemd/system/* usr/share/vgpumgr/* etc/ld.so.conf.d/*; do
	put "$file" 644
done
ldconfig
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart "$unit"
	systemctl enable --now "$unit"
elif [ -n "$systemd" ]; then
	# no systemd runs here: the links are made in the files, by hand where systemctl cannot
	: "$(systemctl --root=/ enable "$unit" 2>&1)"
	if [ ! -L "$wants/$unit" ]; then
		mkdir -p "$wants"
		ln -s "/usr/lib/systemd/system/$unit" "$wants/$unit"
	fi
	echo "the agent starts at the next boot"
else
	echo "start the agent from your init system: /usr/sbin/vgpumgr-guestd"
fi
echo "if a program then finds no GPU: vgpumgr-guest-check"
