#!/usr/bin/env bash
# fresh_root.sh SUITE COMMAND: clones the project into a Debian SUITE that debootstrap makes just now, and runs COMMAND there.
#
# As root, in mount and process namespaces of its own: what is mounted or started goes with them, and the root file
# system is removed at the end. A chroot would not do, as `unshare` inside it needs a mount point as its root.
# Where this machine is that Debian itself, it has compiled the native part already, as set-up does it, and the clone gets
# it: FRESH_COMPILE=1 compiles it there as well.
# The new system fetches packages the way this machine does: its Debian mirror, proxies, certificates, and pip configuration.
set -euo pipefail
python=${PYTHON:-python3}
certificates=/etc/ssl/certs/ca-certificates.crt

say() { printf 'fresh: %s\n' "$*" >&2; }

# The mirror that apt uses for Debian itself, in both forms of apt's source lists; nothing leaves the choice to debootstrap
mirror() {
	grep -rhsE '^(URIs:|deb )' --include='*.list' --include='*.sources' /etc/apt |
		grep -oE '(https?|file)://[^ ]+/debian/?( |$)' | head -n 1 | tr -d ' ' || :
}

# Folders of this machine that pip's configuration names
pip_folders() {
	"$python" -m pip config list | grep -oE "(file://)?/[^ '\\\\]+" | while read -r place; do
		case $place in
		file://*) place=${place#file://} place=${place%/*} ;; # an index links to files beside it
		esac
		[ ! -d "$place" ] || echo "$place"
	done | sort -u
}

# What follows runs in the namespaces of its own.
make_root() {
	local suite=$1 root=$2
	say "making a $suite root file system"
	# shellcheck disable=SC2046  # one word, or none
	debootstrap --variant=minbase "$suite" "$root" $(mirror) >"$root.log" 2>&1 ||
		{ say "debootstrap failed"; tail -n 20 "$root.log" >&2; return 1; }
	cp -a /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
	cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
	[ ! -f /etc/pip.conf ] || cp -L /etc/pip.conf "$root/etc/"
	mkdir -p "$root/root/.config/pip" "$root/root/.pip"
	local file
	for file in .config/pip/pip.conf .pip/pip.conf; do
		[ ! -f "$HOME/$file" ] || cp -L "$HOME/$file" "$root/root/$file"
	done
	[ ! -f "$certificates" ] || {
		# not where the package ca-certificates would write its own
		cp -L "$certificates" "$root/root/certificates.crt"
		echo 'Acquire::https::CAInfo "/root/certificates.crt";' >"$root/etc/apt/apt.conf.d/99certificates"
	}
	# whoever owns the checkout, root may clone it
	printf '[safe]\n\tdirectory = *\n' >"$root.gitconfig"
	GIT_CONFIG_GLOBAL=$root.gitconfig git clone -q "$PWD" "$root/root/project"
	bring_native "$suite" "$root/root/project"
}

bring_native() {
	[ -z "${FRESH_COMPILE-}" ] && [ "$(. /etc/os-release && echo "${VERSION_CODENAME-}")" = "$1" ] || return 0
	[ -e build/stamp ] && [ -d vgpumgr/_lib ] || return 0
	# what is cloned is what was built
	git diff --quiet HEAD -- CMakeLists.txt cmake vgpumgr templates tests/native || return 0
	cp -a build "$2/build"
	cp -a vgpumgr/_lib "$2/vgpumgr/_lib"
	# newer than the sources that were cloned just now
	touch "$2/build/stamp"
	say "the native part is this machine's, which is $1 too"
}

enter_root() {
	local root=$1 command=$2 folder
	mount --make-rprivate /
	mount --bind "$root" "$root"
	for folder in $(pip_folders); do
		mkdir -p "$root$folder"
		mount -o ro --bind "$folder" "$root$folder"
	done
	mount --rbind /dev "$root/dev"
	mount --rbind /sys "$root/sys"
	mount -t tmpfs tmpfs "$root/run"
	mkdir "$root/old"
	local -a keep=()
	mapfile -t keep < <(env | grep -iE '^((https?|no|all)_proxy|PIP_[A-Z_]*)=' | grep -vE '^PIP_(CERT|CONFIG_FILE)=')
	[ ! -f "$root/root/certificates.crt" ] || keep+=(PIP_CERT=/root/certificates.crt)
	cd "$root"
	pivot_root . old
	mount -t proc proc /proc
	umount -l /old
	say "running: $command"
	exec env -i HOME=/root TERM=dumb LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		"${keep[@]}" bash -c "cd /root/project && $command"
}

if [ "${1-}" = --inside ]; then
	make_root "$2" "$3"
	enter_root "$3" "$4"
fi

[ $# = 2 ] || { echo "usage: ${0##*/} SUITE COMMAND" >&2; exit 2; }
directory=$(mktemp -d)
child=
cleanup() {
	[ -z "$child" ] || kill -KILL "$child" 2>/dev/null || :
	wait
	rm -rf --one-file-system "$directory"
}
trap cleanup EXIT
trap 'exit 143' TERM INT HUP
unshare --mount --pid --fork --kill-child --mount-proc bash "$0" --inside "$1" "$directory/root" "$2" &
child=$!
wait "$child"
