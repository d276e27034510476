/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's agent on shared memory, between processes that ask for lanes, a worker that lies, ends and comes again, and whoever
 * writes over the header and lane 0. The agent is the real one; the memory's other side is here. An input is a tape, as in
 * agent_fuzz.c: the outcomes of all that is left to chance. Each runs in a process of its own, without threads of its own but the one that
 * hands the device over, and with no time but what the tape's steps take. At the end a proper worker must be greeted and
 * a proper process must have a lane, and each lane of that worker must be given back.
 * Usage: ring_agent_fuzz kept DIRECTORY, and what kept.h says.
 */
#pragma GCC diagnostic ignored "-Wreturn-type"
#include <poll.h>
#include <signal.h>
static int poll_and_step(struct pollfd *fds, nfds_t count, const struct timespec *pause, const sigset_t *mask);
#define ppoll poll_and_step
#define main agent_main
#include "../../vgpumgr/virtio/native/guestd/main.c"
#undef main
#undef ppoll

#include <pthread.h>
#include <setjmp.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "kept.h"

enum { MEMORY = 1 << 20, TAPE_MAX = 8 << 10, STEP_MS = 20, END_TURNS = 4000, CLIENTS = 5, LANES = 4 };

struct peer {
	int fd;
	bool asked;
	uint32_t lane;           /* 0: none */
};

static struct peer clients[CLIENTS], last = { .fd = -1 };
static bool last_asked, fair;
static char agent_path[200], device_path[200];
static const uint8_t *tape, *tape_end;
static uint64_t tape_ms = 1;
static unsigned end_turns;
static jmp_buf tape_done;

static uint64_t roll(uint64_t most)
{
	uint64_t value = 0;

	for (unsigned bytes = most > 256 ? 2 : 1; bytes; bytes--)
		value = value << 8 | (tape < tape_end ? *tape++ : 0);
	return value % most;
}

uint64_t __wrap_vg_now_ms(void);
uint64_t __wrap_vg_now_ms(void)
{
	return tape_ms;
}

/* ---- the worker's side of the memory ---- */

static int listener = -1, memory_fd = -1, bell = -1;
static _Atomic int device = -1; /* the connection that stands for the device */
static uint8_t *memory;
static struct vg_layout layout;
static struct vg_header *header;
static struct vg_control *control;
static struct vg_ring submit, reply;
static uint64_t epoch, counter, given[LANES + 1]; /* generations of lanes that are the guest's */

static void write_header(void)
{
	vg_layout(MEMORY, &layout);
	vg_layout_publish(&layout, header);
	vg_store32(&header->number, 0);
	vg_store32(&header->state, VG_STATE_READY);
}

/* A worker that begins: its lanes are free, lane 0 is new. */
static void start_worker(void)
{
	uint8_t *base = (uint8_t *)control + VG_PAGE;

	memset(given, 0, sizeof(given));
	vg_store64(&control->life, 0);
	write_header();
	vg_store64(&control->submit_head, 0);
	vg_store64(&control->submit_tail, 0);
	vg_store64(&control->reply_head, 0);
	vg_store64(&control->reply_tail, 0);
	vg_ring_init(&submit, base, VG_CONTROL_RING, &control->submit_head, &control->submit_tail);
	vg_ring_init(&reply, base + VG_CONTROL_RING, VG_CONTROL_RING, &control->reply_head, &control->reply_tail);
	vg_store64(&control->life, ++epoch << 32 | ++counter);
}

static void answer(uint32_t sequence, int32_t status, const void *data, size_t length)
{
	struct vg_reply_header body = { .length = VG_ALIGN + (uint32_t)length, .status = status, .sequence = sequence };
	uint8_t *place;

	if (vg_ring_room(&reply, body.length))
		return;
	place = vg_ring_place(&reply, body.length);
	vg_copy_out(place + VG_ALIGN, data, length);
	vg_copy_out(place, &body, sizeof(body));
	vg_ring_publish(&reply, body.length);
}

static void give_lane(uint32_t sequence)
{
	struct vg_opened opened = { 0 };

	for (uint32_t i = 1; i <= LANES && !opened.lane; i++)
		if (!given[i])
			opened = (struct vg_opened){ .lane = i, .generation = epoch << 32 | ++counter };
	if (!opened.lane || (!fair && !roll(10)))
		return answer(sequence, -EUSERS, "full", 5);
	given[opened.lane] = opened.generation;
	vg_store64(&vg_lane_at(memory, &layout, opened.lane)->life, opened.generation);
	if (!fair && !roll(30))
		opened.lane = (uint32_t)roll(300); /* one that there is not, perhaps */
	answer(sequence, 0, &opened, sizeof(opened) - (!fair && !roll(30)));
}

static void take_back(const struct vg_close *end)
{
	if (end->lane && end->lane <= LANES && given[end->lane] == end->generation) {
		vg_store64(&vg_lane_at(memory, &layout, end->lane)->life, 0);
		given[end->lane] = 0;
	}
}

static void serve_frame(const struct vg_frame_header *frame, const uint8_t *body)
{
	struct vg_welcome welcome = { .device = "device", .hash = { 9 } };
	struct vg_close end;

	switch (frame->op) {
	case VG_CONTROL_HELLO: /* an agent that begins anew has no lanes */
		for (uint32_t i = 1; i <= LANES; i++)
			take_back(&(struct vg_close){ .lane = i, .generation = given[i] });
		if (!fair && !roll(20))
			return answer(frame->sequence, -EPROTO, "another version", roll(16));
		return answer(frame->sequence, 0, &welcome, fair || roll(20) ? sizeof(welcome) : roll(sizeof(welcome)));
	case VG_CONTROL_OPEN:
	case VG_CONTROL_RESERVE:
		return give_lane(frame->sequence);
	case VG_CONTROL_CLAIM:
		return answer(frame->sequence, fair || roll(8) ? 0 : -ESTALE, "gone", 5);
	case VG_CONTROL_CLOSE:
		memcpy(&end, body, sizeof(end));
		take_back(&end);
		return answer(frame->sequence, 0, "", 0);
	default:
		return answer(frame->sequence, 0, body, 8);
	}
}

/* A worker whose ring is spoilt begins again, as the real one does. */
static void serve(void)
{
	static uint8_t body[VG_CONTROL_RING];
	struct vg_frame_header frame;
	int64_t waiting;

	while ((waiting = vg_ring_waiting(&submit))) {
		int error = waiting < 0 ? (int)waiting : vg_ring_next(&submit, &frame);

		if (error == -EAGAIN)
			continue;
		if (error || frame.length > sizeof(body))
			return start_worker();
		vg_copy_in(body, vg_ring_payload(&submit), frame.length - VG_ALIGN);
		vg_ring_consume(&submit, frame.length);
		vg_ring_release(&submit);
		serve_frame(&frame, body);
	}
}

/* ---- what goes wrong ---- */

static void spoil(void)
{
	static const uint64_t odd[] = { 0, 1, 32, 4096, 1 << 16, UINT32_MAX, UINT64_MAX, UINT64_MAX - 31 };
	vg_word64 *words[] = { &control->submit_head, &control->submit_tail, &control->reply_head, &control->reply_tail, &control->life };
	vg_word32 *sizes[] = { &header->version, &header->state, &header->lane_count, &header->lane_size, &header->submit_size,
			       &header->reply_size, &header->window_size, &header->block_size, &header->bulk_max, &header->number };
	uint8_t noise[64];

	switch (roll(8)) {
	case 0:
		vg_store64(words[roll(5)], odd[roll(8)]);
		break;
	case 1:
		vg_store64(words[roll(4)], vg_load64(words[roll(4)]) + 32 * roll(300));
		break;
	case 2:
	case 3:
		vg_store32(sizes[roll(10)], (uint32_t)odd[roll(8)]);
		vg_store64(&control->life, ++epoch << 32 | ++counter); /* and the header is read again */
		break;
	case 4:
		((uint8_t *)control)[VG_PAGE + roll(2 * VG_CONTROL_RING)] ^= (uint8_t)(1 << roll(8));
		break;
	case 5:
		for (unsigned i = 0; i < sizeof(noise); i++)
			noise[i] = (uint8_t)roll(256);
		answer((uint32_t)roll(600), (int32_t)roll(3) - 1, noise, roll(sizeof(noise)));
		break;
	case 6:
		vg_store64(&header->size, odd[roll(8)]);
		break;
	default:
		start_worker();
	}
}

/* ---- the device, as QEMU's ivshmem server hands it over ---- */

static void *hand_over(void *unused)
{
	static const int64_t numbers[] = { 0, 0, -1, 1, 0 };

	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		for (unsigned i = 0; fd >= 0 && i < 5; i++) {
			int *with = i == 2 ? &memory_fd : i == 3 ? &bell : NULL;

			vg_send_fds(fd, &numbers[i], sizeof(numbers[i]), with, with ? 1 : 0);
		}
		atomic_store(&device, fd);
	}
	return unused;
}

static void unplug(void)
{
	int fd = atomic_exchange(&device, -1);

	if (fd >= 0)
		close(fd);
}

static void plug(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	pthread_t thread;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", device_path);
	unlink(device_path);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	memory_fd = memfd_create("device", MFD_CLOEXEC);
	bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (listener < 0 || memory_fd < 0 || bell < 0 || ftruncate(memory_fd, MEMORY) ||
	    bind(listener, (struct sockaddr *)&address, sizeof(address)) || listen(listener, 16))
		abort();
	memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0);
	header = (struct vg_header *)memory;
	control = vg_lane_at(memory, &layout, 0);
	if (memory == MAP_FAILED || pthread_create(&thread, NULL, hand_over, NULL))
		abort();
	start_worker();
}

/* ---- the guest's processes ---- */

static void ask(struct peer *c)
{
	struct vg_agent_request request = { .magic = VG_AGENT_MAGIC, .version = VG_WIRE_VERSION };

	request.device = fair || roll(12) ? 0 : (uint32_t)roll(4);
	c->asked = send(c->fd, &request, sizeof(request), MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(request);
}

/* Nothing of the agent's memory but what it means to say. */
static void check_text(const char *text, size_t size)
{
	for (size_t i = 0; i < size && text[i]; i++)
		if (text[i] < ' ' || text[i] > '~')
			abort();
}

static void hear(struct peer *c)
{
	struct vg_agent_answer got;
	ssize_t n = recv(c->fd, &got, sizeof(got), MSG_DONTWAIT);

	if (n == sizeof(got) && got.magic == VG_AGENT_MAGIC && got.error)
		check_text(got.text, sizeof(got.text));
	if (n == sizeof(got) && got.magic == VG_AGENT_MAGIC && !got.error)
		c->lane = got.lane;
	else if (n >= 0)
		vg_close_fd(&c->fd);
}

static void step(void)
{
	struct peer *c = &clients[roll(CLIENTS)];

	if (roll(4))
		serve();
	if (!roll(12))
		spoil();
	if (!roll(150))
		unplug();
	if (c->fd < 0)
		*c = (struct peer){ .fd = vg_connect_now(agent_path) };
	else if (!roll(12))
		vg_close_fd(&c->fd);
	else if (!c->asked)
		ask(c);
	else
		hear(c);
}

/* ---- the end ---- */

/* What other processes hold is the guest's; what nobody holds comes back, but for the one that is kept ready. */
static bool is_given_back(void)
{
	unsigned held = 0;

	for (unsigned i = 1; i <= LANES; i++)
		held += given[i] && given[i] != agent.ring[0].link.reserved.generation;
	return !held;
}

static void begin_end(void)
{
	fair = true;
	for (unsigned i = 0; i < CLIENTS; i++)
		vg_close_fd(&clients[i].fd);
	unplug();
	start_worker();
}

/* A process gets a lane, ends, and its lane comes back. */
static bool comes_to_terms(void)
{
	write_header();
	serve();
	if (last.fd < 0 && !last.lane) {
		last = (struct peer){ .fd = vg_connect_now(agent_path) };
		last_asked = false;
	}
	if (last.fd >= 0 && !last_asked) {
		ask(&last);
		last_asked = true;
	} else if (last.fd >= 0) {
		hear(&last);
	}
	if (last.fd >= 0 && last.lane)
		vg_close_fd(&last.fd);
	return last.lane && last.fd < 0 && is_given_back();
}

static void play(void)
{
	tape_ms += STEP_MS;
	if (tape < tape_end)
		return step();
	if (!end_turns++)
		begin_end();
	if (comes_to_terms())
		longjmp(tape_done, 1);
	if (end_turns > END_TURNS)
		longjmp(tape_done, 2);
}

static int poll_and_step(struct pollfd *fds, nfds_t count, const struct timespec *pause, const sigset_t *mask)
{
	static const struct timespec none;

	(void)pause;
	play();
	return ppoll(fds, count, &none, mask);
}

static void play_all(const uint8_t *bytes, size_t size)
{
	int how;

	tape = bytes;
	tape_end = bytes + size;
	plug();
	how = setjmp(tape_done);
	if (!how)
		loop(&agent);
	if (how == 2)
		fprintf(stderr, "the end: lane %u, greeted %d, refusal \"%s\", given %llx %llx %llx %llx\n", last.lane,
			agent.ring[0].link.greeted, agent.ring[0].link.refusal, (unsigned long long)given[1],
			(unsigned long long)given[2], (unsigned long long)given[3], (unsigned long long)given[4]);
	exit(how == 1 ? 0 : 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	pid_t child = fork();
	int status;

	if (!child)
		play_all(bytes, size);
	if (child < 0 || waitpid(child, &status, 0) != child || status)
		exit(1);
	return 0;
}

static size_t make_tape(uint64_t seed, uint8_t *bytes, size_t room)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15ull | 1;
	size_t length = 1 + seed * 7919 % (room < TAPE_MAX ? room : TAPE_MAX);

	for (size_t i = 0; i < length; i++) {
		state ^= state << 13, state ^= state >> 7, state ^= state << 17;
		bytes[i] = (uint8_t)(state >> 24);
	}
	return length;
}

int main(int argc, char **argv)
{
	char *words[] = { "agent", "--socket", agent_path, "--transport", "ring", "--lanes", "shared", "--ivshmem-socket", device_path, NULL };

	if (argc < 4 || strcmp(argv[1], "kept"))
		return 2;
	snprintf(agent_path, sizeof(agent_path), "%s/agent.sock", argv[2]);
	snprintf(device_path, sizeof(device_path), "%s/device.sock", argv[2]);
	signal(SIGPIPE, SIG_IGN);
	for (unsigned i = 0; i < CLIENTS; i++)
		clients[i].fd = -1;
	if (parse(&agent, 9, words) || begin(&agent))
		return 2;
	return kept_main(argc - 3, argv + 3, make_tape);
}
