/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's agent on the ring: a window whose host lies, dies and goes, which another process of the guest writes to as
 * well, and processes that send what they like. The agent is the real one, so is the server's lane 0 (server.h); relays
 * are sockets. An input is a tape (window.h) and runs in a process of its own; no time passes but its own. At the end the
 * agent must answer a proper process without a new worker, and give it a lane with one.
 * Usage: ring_fuzz SEED ROUNDS DIRECTORY; ring_fuzz found NAME DIRECTORY, for what was found once; or "kept" DIRECTORY and what
 * kept.h says.
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

#include <assert.h>
#include <fcntl.h>
#include <setjmp.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "kept.h"
#include "relays.h"
#include "server.h"
#include "window.h"

enum { CLIENTS = 10, STEP_MS = 2, END_STEP_MS = 20, END_MS = 180000, RETRY_MS = 12000 };

struct peer {
	int fd;
	bool asked, has_lane;
	uint64_t since_ms;
};

static struct peer clients[CLIENTS], last;
static int host = -1; /* the other end of what the agent takes for QEMU's server; -1: there is no device */
static bool has_answer, is_silent;
static char agent_path[200];
static jmp_buf done;
static uint64_t end_ms;
static bool restarted;
static char refusal[200]; /* the last that a process was told */

/* ---- the device ---- */

int agent_join_server(struct agent_ring *ring)
{
	int pair[2];

	if (host >= 0 || !window.memory)
		return -ENOENT;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		exit(2);
	host = pair[0];
	ring->server = pair[1];
	ring->memory_fd = fcntl(window.fd, F_DUPFD_CLOEXEC, 0);
	ring->doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ring->doorbell_kind = VG_DOORBELL_EVENTFD;
	ring->size = window.size;
	return 0;
}

int agent_find_ivshmem(struct agent_ring *ring)
{
	(void)ring;
	return -ENODEV;
}

int agent_open_port(struct agent_serial *serial)
{
	(void)serial;
	return -ENODEV;
}

static void bring_device(size_t size)
{
	if (!window_make(size))
		exit(2);
	server_begin();
}

static void take_device(void)
{
	window_rest();
	server_end();
	window_free();
	vg_close_fd(&host);
}

/* ---- the host ---- */

static void serve(void)
{
	uint64_t count;

	if (window.memory)
		server_turn();
	if (agent.ring[0].doorbell_fd >= 0)
		(void)!read(agent.ring[0].doorbell_fd, &count, sizeof(count));
}

/* An answer of the host's own to something that was asked. */
static void lie(void)
{
	static uint8_t data[1000];
	const struct request *request = &agent.ring[0].link.request[roll(4)];
	struct vg_ring *ring = &server.control_ring.reply;
	struct vg_opened given = { .lane = (uint32_t)roll(VG_RING_LANES_MAX + 2), .generation = roll(4) };
	struct vg_reply_header header = { .status = roll(2) ? 0 : -(int32_t)roll(100), .sequence = request->sequence };

	header.length = VG_ALIGN + (uint32_t)(roll(2) ? sizeof(given) : roll(sizeof(data)));
	if (!window.memory || !server.control_ring.control || !request->busy || vg_ring_room(ring, header.length))
		return;
	fill(data, sizeof(data));
	memcpy(data, &given, sizeof(given));
	memcpy(vg_ring_place(ring, header.length), &header, sizeof(header));
	memcpy((uint8_t *)vg_ring_place(ring, header.length) + VG_ALIGN, data, header.length - VG_ALIGN);
	vg_ring_publish(ring, header.length);
	window_lied();
}

static void change_host(void)
{
	static const size_t sizes[] = { 1 << 20, 1 << 20, 2 << 20, 16 << 20 };

	switch (roll(8)) {
	case 0:
		if (window.memory)
			take_device();
		return;
	case 1:
		if (window.memory)
			take_device();
		return bring_device(sizes[roll(4)]);
	case 2:
	case 3:
		if (!window.memory)
			return bring_device(sizes[roll(4)]);
		server_end();
		return server_begin();
	case 4:
		return server_refuse_sessions(roll(4) == 1);
	case 5:
		is_silent = roll(3) == 1;
		return;
	default:
		if (window.memory)
			server_end_sessions(roll(2));
	}
}

/* ---- its processes ---- */

/* A private lane is memory of the client's own, which nobody can cut short; the window is another. */
static void check_lane(const struct vg_agent_answer *got, const int *fds)
{
	struct stat memory, all;

	assert(got->transport == VG_TRANSPORT_RING && fds[0] >= 0 && fds[1] >= 0 && fds[2] >= 0);
	assert(!fstat(fds[0], &memory) && (uint64_t)memory.st_size >= got->memory_size);
	if (agent.lanes == LANES_SHARED)
		return;
	assert(got->lane == 1 && got->doorbell == VG_DOORBELL_EVENTFD && fcntl(fds[0], F_GET_SEALS) & F_SEAL_SHRINK);
	assert(!window.memory || (!fstat(window.fd, &all) && all.st_ino != memory.st_ino));
	assert(fcntl(fds[2], F_GETFL) % 4 == O_RDONLY);
}

static void take_answer(struct peer *c, const struct vg_agent_answer *got, int *fds)
{
	assert(got->magic == VG_AGENT_MAGIC && memchr(got->text, 0, sizeof(got->text)));
	for (const char *text = got->text; *text; text++)
		assert(*text >= ' ' && *text <= '~');
	if (got->error)
		memcpy(refusal, got->text, sizeof(refusal));
	has_answer |= c == &last && (!got->error || got->error == -EUSERS);
	if (!got->error)
		check_lane(got, fds);
	c->has_lane = !got->error;
	for (unsigned i = 0; i < VG_AGENT_FDS; i++)
		vg_close_fd(&fds[i]);
}

static void hear(struct peer *c)
{
	struct vg_agent_answer got;
	struct pollfd ready = { c->fd, POLLIN, 0 };
	int fds[VG_AGENT_FDS];

	if (c->fd < 0 || poll(&ready, 1, 0) <= 0)
		return;
	if (c->has_lane || vg_recv_fds(c->fd, &got, sizeof(got), fds, VG_AGENT_FDS)) {
		vg_close_fd(&c->fd);
		return;
	}
	take_answer(c, &got, fds);
}

static void ask(struct peer *c)
{
	struct vg_agent_request request = { .magic = VG_AGENT_MAGIC, .version = VG_WIRE_VERSION };
	size_t length = sizeof(request);

	fill(request.name, sizeof(request.name));
	if (!roll(12))
		((uint8_t *)&request)[roll(sizeof(request))] ^= (uint8_t)(1 + roll(255));
	if (!roll(8))
		length = roll(sizeof(request));
	(void)!send(c->fd, &request, length, MSG_NOSIGNAL | MSG_DONTWAIT);
	c->asked = length == sizeof(request);
}

static void move_client(void)
{
	struct peer *c = &clients[roll(CLIENTS)];

	if (c->fd < 0)
		*c = (struct peer){ .fd = vg_connect_now(agent_path) };
	else if (!roll(6))
		vg_close_fd(&c->fd);
	else if (!c->asked)
		ask(c);
	else if (!roll(12))
		(void)!send(c->fd, "more", 4, MSG_NOSIGNAL | MSG_DONTWAIT);
	else
		hear(c);
}

static void step(void)
{
	if (!is_silent && roll(4))
		serve();
	switch (roll(16)) {
	case 0:
		return change_host();
	case 1:
		return window_spoil();
	case 2:
		return window_arm();
	case 3:
		return window_follow(roll(3) || !agent.ring[0].life ? NULL : &agent.ring[0].reply, &agent.ring[0].memory, roll(2));
	case 4:
		return lie();
	case 5:
		return clock_advance(roll(6) ? roll(2500) : 35000);
	case 6:
	case 7:
		return relays_move();
	default:
		move_client();
	}
}

/* ---- the end ---- */

static void begin_end(void)
{
	window_rest();
	is_silent = false;
	for (unsigned i = 0; i < CLIENTS; i++)
		vg_close_fd(&clients[i].fd);
	if (!window.memory)
		bring_device(WINDOW_SIZE);
	server_refuse_sessions(false);
	end_ms = vg_now_ms() + END_MS;
}

static void ask_properly(struct peer *c)
{
	struct vg_agent_request request = { .magic = VG_AGENT_MAGIC, .version = VG_WIRE_VERSION };

	(void)!send(c->fd, &request, sizeof(request), MSG_NOSIGNAL | MSG_DONTWAIT);
	c->asked = true;
}

static void ask_at_the_end(void)
{
	if (last.fd >= 0 && vg_now_ms() - last.since_ms > RETRY_MS)
		vg_close_fd(&last.fd);
	if (last.fd < 0) {
		last = (struct peer){ .fd = vg_connect_now(agent_path), .since_ms = vg_now_ms() };
		ask_properly(&last);
	}
	hear(&last);
}

/* 0: not yet; 1: well; 2: badly. */
static int end_turn(void)
{
	clock_advance(END_STEP_MS);
	server_end_sessions(false);
	serve();
	relays_end();
	ask_at_the_end();
	if (last.has_lane && server_held() == 1)
		return 1;
	/* lanes of which the agent was told lies are given back by a new worker only */
	if (has_answer && window_is_spoilt() && !restarted) {
		restarted = true;
		vg_close_fd(&last.fd);
		server_end();
		server_begin();
		end_ms = vg_now_ms() + END_MS;
	}
	return vg_now_ms() > end_ms ? 2 : 0;
}

/* ---- what was found once ---- */

enum { FOUND_BEGINS = 20, FOUND_ENDS = 400 };

struct found {
	const char *name;
	void (*step)(unsigned turn); /* from the moment when the agent has been greeted */
	const char *refusal;         /* what a process hears meanwhile */
};
static const struct found *found;
static unsigned found_turn;

static struct vg_header *header(void)
{
	return (struct vg_header *)window.memory;
}

static struct vg_control *lane0(void)
{
	return vg_lane_at(window.memory, &window.layout, 0);
}

/* Replies, as fast as they are read: the agent never came to anything else. */
static void write_without_end(unsigned turn)
{
	window_follow(turn < FOUND_ENDS - 1 ? &agent.ring[0].reply : NULL, &agent.ring[0].memory, turn % 2);
}

/* A header as the next worker would write it, of more memory than there is: a refusal was sent that nobody had written. */
static void write_large_header(unsigned turn)
{
	(void)turn;
	vg_store64(&header()->size, 2 * window.size);
	vg_store64(&lane0()->life, 7);
}

/* Lanes at places where no words can stand. */
static void write_crooked_header(unsigned turn)
{
	(void)turn;
	vg_store32(&header()->lane_size, window.layout.lane_size + 8);
	vg_store64(&lane0()->life, 7);
}

/* A hello that is answered with a refusal: it was never said again. */
static void refuse_hello(unsigned turn)
{
	struct link *link = &agent.ring[0].link;
	struct vg_reply_header reply = { .length = VG_ALIGN + 3, .status = -EPROTO };

	if (turn == FOUND_BEGINS) /* another worker, as it seems: the agent says hello to it */
		vg_store64(&lane0()->life, ++server.control_ring.generation);
	for (unsigned i = 0; i < VG_SLOTS && turn == FOUND_BEGINS + 1; i++) {
		reply.sequence = link->request[i].sequence;
		agent_take_reply(link, &reply, "no");
	}
}

/* Answers that are destroyed: what was asked was never forgotten, and nobody got a lane any more. */
static void destroy_answers(unsigned turn)
{
	vg_word32 *words = (vg_word32 *)((uint8_t *)lane0() + VG_PAGE + VG_CONTROL_RING);

	(void)turn;
	serve();
	for (unsigned at = 2; at < VG_CONTROL_RING / 4; at += VG_ALIGN / 4)
		vg_store32(&words[at], 1);
}

/* The worker's words: an agent that went on from there said hello where the worker had read already. */
static void move_back(unsigned turn)
{
	if (turn != FOUND_BEGINS)
		return;
	vg_store64(&lane0()->submit_tail, server.control_ring.submit.mine - vg_aligned(VG_ALIGN + sizeof(struct vg_hello)));
	vg_store64(&lane0()->reply_head, 7);
}

static const struct found all_found[] = {
	{ "endless", write_without_end, NULL },
	{ "large", write_large_header, "the channel's header says more than its memory holds" },
	{ "crooked", write_crooked_header, "the channel's header is damaged" },
	{ "refused", refuse_hello, "no" },
	{ "destroyed", destroy_answers, NULL },
	{ "back", move_back, NULL },
};

static void find(void)
{
	struct peer *c = &clients[found_turn / 8 % CLIENTS];

	clock_advance(STEP_MS);
	if (found_turn++ < FOUND_BEGINS)
		return serve();
	found->step(found_turn - 1);
	if (c->fd < 0)
		*c = (struct peer){ .fd = vg_connect_now(agent_path) };
	else if (!c->asked)
		ask_properly(c);
	hear(c);
}

/* ---- a tape ---- */

static void play(void)
{
	int how;

	if (found && found_turn < FOUND_ENDS)
		return find();
	if (!tape_has_ended()) {
		clock_advance(STEP_MS);
		step();
		return;
	}
	if (!end_ms)
		begin_end();
	how = end_turn();
	if (how)
		longjmp(done, how);
}

static int poll_and_step(struct pollfd *fds, nfds_t count, const struct timespec *pause, const sigset_t *mask)
{
	static const struct timespec none;

	(void)pause;
	window_turn(false);
	play();
	window_turn(true);
	return ppoll(fds, count, &none, mask);
}

static void play_all(const uint8_t *bytes, size_t size)
{
	static const enum lanes lanes[] = { LANES_PRIVATE, LANES_PRIVATE, LANES_SHARED, LANES_AUTO };
	int how;

	tape_begin(bytes, size);
	clock_set(true);
	agent.lanes = lanes[roll(4)];
	bring_device(WINDOW_SIZE);
	how = setjmp(done);
	if (!how)
		loop(&agent);
	window_turn(false);
	if (how == 2)
		fprintf(stderr, "at the end: %s, held %u\n", has_answer ? "answered" : "no answer", server_held());
	if (found && found->refusal && strcmp(refusal, found->refusal)) {
		fprintf(stderr, "a process heard: %s\n", refusal);
		how = 2;
	}
	exit(how == 1 && !(found && restarted) ? 0 : 1);
}



static int look_for(const char *name)
{
	for (unsigned i = 0; i < sizeof(all_found) / sizeof(all_found[0]); i++)
		if (!strcmp(all_found[i].name, name))
			found = &all_found[i];
	return found ? LLVMFuzzerTestOneInput(NULL, 0) : 2;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	pid_t child = fork();
	int status;

	if (!child)
		play_all(bytes, size);
	if (child < 0 || relays_wait_for(child, &status) || status)
		exit(1);
	return 0;
}

static int run_rounds(uint64_t seed, unsigned long rounds)
{
	static uint8_t bytes[TAPE_MAX];

	for (unsigned long i = 0; i < rounds; i++)
		LLVMFuzzerTestOneInput(bytes, make_tape(seed * 1000000 + i, bytes, sizeof(bytes)));
	printf("%lu tapes\n", rounds);
	return 0;
}

int main(int argc, char **argv)
{
	char *words[] = { "agent", "--socket", agent_path, "--transport", "ring", "--ivshmem-socket", "-", "--user-lanes", "3", NULL };
	bool is_kept = argc > 1 && !strcmp(argv[1], "kept");

	if (argc < 4)
		return 2;
	snprintf(agent_path, sizeof(agent_path), "%s/agent.sock", is_kept ? argv[2] : argv[3]);
	signal(SIGPIPE, SIG_IGN);
	if (parse(&agent, 9, words) || begin(&agent))
		return 2;
	agent.spare.socket = -1;
	last.fd = -1;
	for (unsigned i = 0; i < CLIENTS; i++)
		clients[i].fd = -1;
	if (is_kept)
		return kept_main(argc - 3, argv + 3, make_tape);
	if (!strcmp(argv[1], "found"))
		return look_for(argv[2]);
	return run_rounds(strtoull(argv[1], NULL, 0), strtoul(argv[2], NULL, 0));
}
