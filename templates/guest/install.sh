#!/bin/sh
# Installs the vgpumgr guest package into this VM: run as root from the unpacked archive.
set -eu
cd "$(dirname "$0")"
[ "$(id -u)" = 0 ] || { echo "install.sh: run as root" >&2; exit 1; }
cp -a usr etc /
ldconfig
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl enable --now vgpumgr-guestd.service
else
	echo "start the agent from your init system: /usr/sbin/vgpumgr-guestd"
fi
