/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile guest: scribble ring SECONDS SEED | scribble serial BYTES SEED.
 * ring: maps the shared memory behind the agent's back and overwrites random words of it for some seconds.
 * serial: writes random bytes to the channel's virtio-serial port (the agent must not have it open).
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static uint64_t state;

static uint64_t next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static unsigned read_id(const char *device, const char *name)
{
	char path[512];
	unsigned value = 0;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/%s", device, name);
	FILE *f = fopen(path, "re");
	if (f) {
		if (fscanf(f, "%x", &value) != 1)
			value = 0;
		fclose(f);
	}
	return value;
}

static int open_shared_memory(void)
{
	DIR *dir = opendir("/sys/bus/pci/devices");
	for (struct dirent *e; dir && (e = readdir(dir));) {
		char path[512];
		if (read_id(e->d_name, "vendor") != 0x1af4 || read_id(e->d_name, "device") != 0x1110)
			continue;
		snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/resource2", e->d_name);
		closedir(dir);
		return open(path, O_RDWR | O_CLOEXEC);
	}
	return -1;
}

static int scribble_ring(int seconds)
{
	struct stat st;
	int fd = open_shared_memory();
	if (fd < 0 || fstat(fd, &st) < 0) {
		perror("shared memory");
		return 1;
	}
	volatile uint32_t *words = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (words == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	uint64_t count = (uint64_t)st.st_size / 4, written = 0;
	for (time_t end = time(NULL) + seconds; time(NULL) < end;) {
		for (int i = 0; i < 4096; i++, written++) {
			/* most of the harm can be done in the first pages, where headers and indices are */
			uint64_t range = next_random() % 4 ? 65536 / 4 : count;
			words[next_random() % range] = (uint32_t)next_random();
		}
	}
	printf("scribbled %llu words\n", (unsigned long long)written);
	return 0;
}

static int scribble_serial(long bytes)
{
	int fd = open("/dev/virtio-ports/org.vgpumgr.0", O_RDWR | O_CLOEXEC);
	if (fd < 0) {
		perror("port");
		return 1;
	}
	for (long done = 0; done < bytes;) {
		uint64_t block[64];
		for (int i = 0; i < 64; i++)
			block[i] = next_random();
		ssize_t n = write(fd, block, sizeof(block));
		if (n <= 0)
			break; /* the host hung up: that is an end, too */
		done += n;
	}
	printf("wrote garbage\n");
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	state = strtoull(argv[3], NULL, 0) | 1;
	return strcmp(argv[1], "ring") == 0 ? scribble_ring(atoi(argv[2])) : scribble_serial(atol(argv[2]));
}
