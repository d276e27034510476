/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile guest: takes a lane as any process may, then does its worst to the shared memory.
 * usage: vgpumgr-test-hostile MODE SEED SECONDS
 *   lane     a lane of its own: random bytes over control words, rings and window, doorbells all the time
 *   frames   well-placed frames with random headers
 *   race     frames whose headers another process of it keeps changing
 *   all      random bytes everywhere in the memory, lane 0 and other processes' lanes included
 * Lost lanes are opened again. Prints how often.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../../vgpumgr/virtio/native/transport/ring.h"
#include "../../../vgpumgr/virtio/native/transport/util.h"
#include "echo.h"

static uint64_t state;

static uint64_t chance(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

struct target {
	int socket, fds[VG_AGENT_FDS];
	struct vg_agent_answer answer;
	uint8_t *memory;
	struct vg_layout layout;
	struct vg_control *control;
};

static int take_lane(struct target *target)
{
	struct vg_agent_request request = { .magic = VG_AGENT_MAGIC, .version = VG_WIRE_VERSION, .name = "hostile" };
	char text[200];
	int error;

	target->socket = vg_connect(getenv("VGPUMGR_AGENT"));
	if (target->socket < 0)
		return target->socket;
	error = vg_send_all(target->socket, &request, sizeof(request));
	if (!error)
		error = vg_recv_fds(target->socket, &target->answer, sizeof(target->answer), target->fds, VG_AGENT_FDS);
	if (error || target->answer.error)
		return error ? error : target->answer.error;
	target->memory = mmap(NULL, target->answer.memory_size, PROT_READ | PROT_WRITE, MAP_SHARED, target->fds[0], 0);
	if (target->memory == MAP_FAILED)
		return -errno;
	/* the window's header may be our own garbage from before: the host's geometry follows from the size */
	error = vg_layout(target->answer.memory_size, &target->layout);
	if (error) /* a memory of our own, and a new one */
		error = vg_layout_read((struct vg_header *)target->memory, &target->layout, text, sizeof(text));
	target->control = vg_lane_at(target->memory, &target->layout, target->answer.lane);
	return error;
}

static void drop_lane(struct target *target)
{
	munmap(target->memory, target->answer.memory_size);
	vg_close_fd(&target->socket);
	for (unsigned i = 0; i < VG_AGENT_FDS; i++)
		vg_close_fd(&target->fds[i]);
}

static void doorbell(struct target *target)
{
	uint64_t one = 1;

	if (write(target->fds[1], &one, sizeof(one)) < 0)
		return;
}

static void scribble(uint8_t *at, size_t size, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		uint64_t value = chance() % 4 ? chance() : chance() % 4096;

		memcpy(at + chance() % (size / 8) * 8, &value, 8);
	}
}

static void attack_lane(struct target *target)
{
	vg_word64 *words[] = { &target->control->submit_head, &target->control->submit_tail,
			       &target->control->reply_head, &target->control->reply_tail };

	scribble((uint8_t *)target->control + VG_PAGE, target->layout.lane_size - VG_PAGE, 64);
	vg_store64(words[chance() % 4], chance() % 2 ? chance() : chance() % 65536 * VG_ALIGN);
	doorbell(target);
}

/* Frames that pass the ring's first checks, so that what follows them is tried as well. */
static void attack_frames(struct target *target, uint64_t *head)
{
	uint8_t *ring = (uint8_t *)target->control + VG_PAGE;
	struct vg_frame_header header = {
		.length = (uint32_t)(chance() % 8 ? VG_ALIGN + chance() % 512 : chance()),
		.op = (uint32_t)(chance() % 16),
		.sequence = (uint32_t)chance(),
		.flags = (uint32_t)(chance() % 8 ? chance() % 8 : chance()),
		.bulk_offset = (uint32_t)(chance() % 4 ? chance() % 65536 : chance()),
		.bulk_length = (uint32_t)(chance() % 4 ? chance() % 65536 : chance()),
	};
	size_t size = vg_aligned(header.length), at = *head & (target->layout.submit_size - 1);

	/* neither a crash, nor a call that only ends with the lane: both are asked for elsewhere */
	if (header.op == ECHO_CRASH || header.op == ECHO_BLOCK)
		header.op = ECHO_ECHO;
	memcpy(ring + at, &header, sizeof(header));
	*head += size < 4096 ? size : VG_ALIGN;
	vg_store64(&target->control->submit_head, *head);
	vg_store64(&target->control->reply_tail, vg_load64(&target->control->reply_head));
	doorbell(target);
	if (chance() % 8 == 0)
		usleep(100);
}

/* Good frames, for the other process to change while they are read. */
static void publish_frame(struct target *target, uint64_t *head)
{
	uint8_t *ring = (uint8_t *)target->control + VG_PAGE;
	struct vg_frame_header header = { .length = VG_ALIGN + 64, .op = ECHO_NULL };
	size_t size = vg_aligned(header.length), at = *head & (target->layout.submit_size - 1);

	if (*head - vg_load64(&target->control->submit_tail) + size > target->layout.submit_size)
		return;
	if (target->layout.submit_size - at < size) {
		header.length = (uint32_t)(target->layout.submit_size - at);
		header.flags = VG_PAD;
		size = header.length;
	} else if (chance() % 2) {
		header.flags = VG_HAS_BULK_IN;
		header.bulk_length = (uint32_t)(chance() % 65536);
	}
	vg_copy_out(ring + at, &header, sizeof(header));
	*head += size;
	vg_store64(&target->control->submit_head, *head);
	doorbell(target);
}

/* Flips lengths, places and flags of the newest frames between good and wild, for as long as it lives. */
static void change_headers(struct target *target)
{
	uint32_t *ring = (uint32_t *)((uint8_t *)target->control + VG_PAGE);
	size_t words = target->layout.submit_size / 4;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		size_t head = vg_load64(&target->control->submit_head) / 4;
		volatile uint32_t *word = &ring[(head + words - chance() % 256) % words];
		uint32_t was = *word;

		*word = chance() % 2 ? (uint32_t)chance() : 1u << (chance() % 32);
		*word = was;
	}
}

static void attack(struct target *target, const char *mode, uint64_t *head)
{
	if (!strcmp(mode, "frames"))
		attack_frames(target, head);
	else if (!strcmp(mode, "lane"))
		attack_lane(target);
	else if (!strcmp(mode, "race"))
		publish_frame(target, head);
	else
		scribble(target->memory, target->answer.memory_size, 4096);
	if (!strcmp(mode, "all"))
		doorbell(target);
}

int main(int argc, char **argv)
{
	time_t end;
	unsigned lanes = 0;

	if (argc != 4)
		return 2;
	state = 88172645463325252ull ^ strtoull(argv[2], NULL, 10) * 2654435761u;
	end = time(NULL) + atoi(argv[3]);
	while (time(NULL) < end) {
		struct target target = { .socket = -1, .fds = { -1, -1, -1 } };
		uint64_t head = 0;

		if (take_lane(&target)) {
			vg_close_fd(&target.socket);
			usleep(20000);
			continue;
		}
		lanes++;
		pid_t racer = strcmp(argv[1], "race") ? 0 : fork();

		if (!racer && !strcmp(argv[1], "race"))
			change_headers(&target);
		for (unsigned i = 0; i < 20000 && time(NULL) < end; i++) {
			attack(&target, argv[1], &head);
			if (vg_load64(&target.control->life) != target.answer.generation && strcmp(argv[1], "all"))
				break;
		}
		if (racer > 0) {
			kill(racer, SIGKILL);
			waitpid(racer, NULL, 0);
		}
		drop_lane(&target);
	}
	printf("%u lanes\n", lanes);
	return 0;
}
