/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries of NVIDIA's that the active Python or conda environment brings: its programs find them before this package's. */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

/* Who has one of these has the others. */
static const char *const names[] = { "libcudart.so.12", "libcudart.so.13", "libcublas.so.12", "libcublas.so.13", "libcudnn.so.9" };

/* A link that vgpumgr-guest made, or a file of this package. */
static bool is_replaced(const char *path, const char *name)
{
	char target[PATH_MAX], ours[CHECK_PATH];
	ssize_t n = readlink(path, target, sizeof(target) - 1);
	int length = snprintf(ours, sizeof(ours), "/vgpumgr/%s", name);

	return n >= length && !strncmp(target + n - length, ours, (size_t)length);
}

static void find_in(const char *folder, char found[CHECK_TEXT], bool *any)
{
	char path[PATH_MAX];
	struct stat st;

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (snprintf(path, sizeof(path), "%s/%s", folder, names[i]) >= PATH_MAX || lstat(path, &st))
			continue;
		*any = true;
		if (!is_replaced(path, names[i]))
			check_append(found, "%s", names[i]);
	}
}

/* Calls find_in() with FOLDER/NAME/BELOW for each entry whose name begins so; with a second level, for each of its entries. */
static void find_below(const char *folder, const char *begin, const char *below, bool deeper, char found[CHECK_TEXT], bool *any)
{
	DIR *directory = opendir(folder);
	struct dirent *entry;
	char path[PATH_MAX];

	while (directory && (entry = readdir(directory))) {
		if (entry->d_name[0] == '.' || strncmp(entry->d_name, begin, strlen(begin)) ||
		    snprintf(path, sizeof(path), "%s/%s/%s", folder, entry->d_name, below) >= PATH_MAX)
			continue;
		if (deeper)
			find_below(path, "", "lib", false, found, any);
		else
			find_in(path, found, any);
	}
	if (directory)
		closedir(directory);
}

void check_wheels(struct check *check)
{
	const char *place = getenv("VIRTUAL_ENV"), *audit = getenv("LD_AUDIT");
	char folder[CHECK_PATH], found[CHECK_TEXT] = "", hint[CHECK_TEXT];
	bool any = false;

	if (!place || !*place)
		place = getenv("CONDA_PREFIX");
	if (!place || !*place) {
		check_report(check, "wheels", CHECK_OK, NULL, "no Python or conda environment is active");
		return;
	}
	snprintf(folder, sizeof(folder), "%s/lib", place);
	find_in(folder, found, &any);
	find_below(folder, "python3", "site-packages/nvidia", true, found, &any);
	snprintf(hint, sizeof(hint), "vgpumgr-guest run PROGRAM, or for good: vgpumgr-guest adopt %s", place);
	if (audit && strstr(audit, "/vgpumgr-audit.so"))
		check_report(check, "wheels", CHECK_OK, NULL, "vgpumgr-guest run puts this package's libraries before those of %s", place);
	else if (*found)
		check_report(check, "wheels", CHECK_WARNING, hint, "%s has libraries that need NVIDIA's driver: %s", place, found);
	else
		check_report(check, "wheels", CHECK_OK, NULL, any ? "%s has links to this package's libraries" :
			     "%s has no CUDA libraries of its own", place);
}
