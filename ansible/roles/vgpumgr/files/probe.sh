# What the role decides by, one NAME=VALUE a line: run on the host before anything is changed, without Python.
# shellcheck shell=sh disable=SC1091
ID=unknown
[ ! -r /etc/os-release ] || . /etc/os-release
echo "uid=$(id -u)"
echo "system=$ID ${VERSION_ID-}"
echo "kin=$ID ${ID_LIKE-}"
if [ -d /run/systemd/system ]; then echo systemd=yes; else echo systemd=no; fi
echo "iommu=$(find /sys/kernel/iommu_groups -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)"
echo "cmdline=$(cat /proc/cmdline)"
for unit in libvirtd.service virtqemud.service; do
	for place in /etc /usr/lib /lib; do
		[ ! -e "$place/systemd/system/$unit" ] || libvirt=$unit
	done
done
echo "libvirt=${libvirt-}"
# of Debian NAME_VERSION_ARCHITECTURE, of RHEL NAME-VERSION-RELEASE.ARCHITECTURE: the files' names without their end
if command -v dpkg-query >/dev/null; then
	installed=$(dpkg-query -W -f '${db:Status-Status} ${Package} ${Package}_${Version}_${Architecture}\n' 2>/dev/null |
		sed -n 's/^installed //p')
elif command -v rpm >/dev/null; then
	installed=$(rpm -qa --qf '%{NAME} %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}\n')
fi
echo "installed=$(echo "${installed-}" | grep -E '^(vgpumgr|libvirt-daemon|qemu|python3)' | tr '\n' ' ')"
echo "units=$(systemctl list-unit-files --no-legend --no-pager --root=/ 'vgpumgr*' 'libvirtd*' 'virtqemud*' 2>/dev/null |
	awk '{print $1 ":" $2}' | tr '\n' ' ')"
echo "active=$(systemctl list-units --no-legend --no-pager --plain --state=active 'vgpumgr*' 'libvirtd*' 'virtqemud*' 2>/dev/null |
	awk '{print $1}' | tr '\n' ' ')"
echo "users=$(getent passwd | cut -d: -f1 | tr '\n' ' ')"
for group in vgpumgr vgpumgr-ro; do
	echo "group_$group=$(getent group "$group" | cut -d: -f4 | tr ',' ' ')"
done
