/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's agent between processes that send what they like and a host that is slow, hangs up and lies: usage is
 * agent_fuzz SEED STEPS DIRECTORY. The agent is the real one, in a thread; both its sides are sockets that this program
 * has the other ends of. At the end it must serve a proper process, and each lane that the host gave must be given back.
 * Usage for inputs that are kept: agent_fuzz kept DIRECTORY, and what kept.h says. An input is a tape: the outcomes of all that is
 * left to chance, one or two bytes each. There is no thread then, and no time but what the tape's steps take, so that a
 * tape always does the same; each runs in a process of its own.
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
#include <sys/socket.h>

#include "kept.h"

enum { TAPE_MAX = 16 << 10, TAPE_CLIENTS = 6, TAPE_STEP_MS = 2, TAPE_END_TURNS = 20000 };
enum { CLIENTS = 70, LANES = VG_SERIAL_LANES, BUFFER = 1 << 20, END_MS = 30000, LEAST_LANES = 400, MOST_STEPS = 20 };

struct peer {
	int fd;
	bool asked;
	uint32_t lane;           /* 0: none */
};

static struct peer clients[CLIENTS];
static int host = -1;
static bool synced, broken, lanes[LANES];
static bool spoilt;      /* the agent may wait, and rightly, for what a host that lied does not send */
static unsigned silent;  /* steps for which the host does nothing */
static uint64_t generation, opened, closed, relayed;
static uint8_t in[BUFFER];
static size_t filled;
static uint64_t state;
static char serial_path[200], agent_path[200];

/* What is left of the tape, if there is one; the time since its beginning; and where its end leads. */
static const uint8_t *tape, *tape_end;
static uint64_t tape_ms;
static unsigned end_turns;
static jmp_buf tape_done;

static uint64_t noise(uint64_t most)
{
	state ^= state << 13, state ^= state >> 7, state ^= state << 17;
	return (state >> 11) % most;
}

static uint64_t roll(uint64_t most)
{
	uint64_t value = 0;

	if (!tape)
		return noise(most);
	for (uint64_t bytes = most > 256 ? 2 : 1; bytes; bytes--)
		value = value << 8 | (tape < tape_end ? *tape++ : 0);
	return value % most;
}

static void fill(void *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
		((uint8_t *)bytes)[i] = (uint8_t)noise(256);
}

uint64_t __real_vg_now_ms(void);
uint64_t __wrap_vg_now_ms(void);
uint64_t __wrap_vg_now_ms(void)
{
	return tape ? tape_ms : __real_vg_now_ms();
}

static void send_some(int fd, const void *bytes, size_t length)
{
	if (fd >= 0 && length)
		(void)!send(fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* ---- the host ---- */

/* A stream loses nothing: where the agent has not read enough for all of it, the host hangs up. */
static void send_to_agent(const void *bytes, size_t length)
{
	if (host >= 0 && !broken && send(host, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)length)
		broken = true;
}

static void hang_up(void)
{
	vg_close_fd(&host);
	synced = broken = spoilt = false;
	filled = 0;
	memset(lanes, 0, sizeof(lanes)); /* a session's end takes its lanes along */
	opened = closed = 0;
}

static void answer(uint32_t sequence, int32_t status, const void *data, size_t length)
{
	uint8_t bytes[sizeof(struct vg_message) + sizeof(struct vg_reply_header) + 256];
	struct vg_reply_header reply = { .length = VG_ALIGN + (uint32_t)length, .status = status, .sequence = sequence };
	struct vg_message message = { VG_MESSAGE_MAGIC, 0, VG_KIND_REPLY, reply.length };

	memcpy(bytes, &message, sizeof(message));
	memcpy(bytes + sizeof(message), &reply, sizeof(reply));
	memcpy(bytes + sizeof(message) + sizeof(reply), data, length);
	send_to_agent(bytes, sizeof(message) + reply.length);
}

static void open_lane(uint32_t sequence, bool fair)
{
	struct vg_opened given = { .generation = ++generation };
	uint32_t lane = 0;

	if (!fair && !roll(8)) { /* refused, with a text that has no end */
		uint8_t text[200];

		fill(text, sizeof(text));
		answer(sequence, -EPROTO, text, roll(sizeof(text)));
		return;
	}
	while (lane < LANES && lanes[lane])
		lane++;
	if (lane == LANES) {
		answer(sequence, -EUSERS, "full", 5);
		return;
	}
	lanes[lane] = true;
	opened++;
	given.lane = VG_SERIAL_LANE_FIRST + lane;
	answer(sequence, 0, &given, sizeof(given));
}

/* With the hash of another interface, so that the agent tells of its own; or of another length. */
static void answer_hello(uint32_t sequence, bool fair)
{
	struct vg_welcome welcome = { .device = "device" };

	size_t length = fair || roll(50) ? sizeof(welcome) : roll(sizeof(welcome));

	fill(welcome.hash, sizeof(welcome.hash));
	spoilt |= length != sizeof(welcome);
	answer(sequence, 0, &welcome, length);
}

static void serve_frame(const struct vg_message *message, const uint8_t *body, bool fair)
{
	struct vg_frame_header header;
	struct vg_close end;

	if (message->lane) {
		relayed++;
		return;
	}
	memcpy(&header, body, sizeof(header));
	if (header.op == VG_CONTROL_HELLO)
		answer_hello(header.sequence, fair);
	else if (header.op == VG_OP_INTERFACE)
		answer(header.sequence, 0, body, roll(256));
	else if (header.op == VG_CONTROL_OPEN)
		open_lane(header.sequence, fair);
	else if (header.op == VG_CONTROL_CLOSE) {
		memcpy(&end, body + sizeof(header), sizeof(end));
		if (end.lane < VG_SERIAL_LANE_FIRST || end.lane >= VG_SERIAL_LANE_FIRST + LANES || !lanes[end.lane - VG_SERIAL_LANE_FIRST])
			abort(); /* a lane that was not given */
		lanes[end.lane - VG_SERIAL_LANE_FIRST] = false;
		closed++;
		answer(header.sequence, 0, "", 0);
	}
}

/* What the agent has sent must be whole messages, whatever its clients do. */
static size_t serve_one(bool fair)
{
	struct vg_message message;

	if (!synced) {
		if (filled < VG_SYNC_SIZE)
			return 0;
		if (memcmp(in, VG_SYNC_TEXT, VG_SYNC_TEXT_SIZE))
			return 1;
		send_to_agent(in, VG_SYNC_SIZE);
		synced = true;
		return VG_SYNC_SIZE;
	}
	if (filled < sizeof(message))
		return 0;
	if (filled >= VG_SYNC_SIZE && !memcmp(in, VG_SYNC_TEXT, VG_SYNC_TEXT_SIZE)) {
		memset(lanes, 0, sizeof(lanes));
		opened = closed = 0;
		synced = spoilt = false;
		return serve_one(fair);
	}
	memcpy(&message, in, sizeof(message));
	if (!memcmp(in, VG_SYNC_TEXT, sizeof(message)))
		return 0;
	if (message.magic != VG_MESSAGE_MAGIC || message.length > VG_MESSAGE_MAX)
		abort();
	if (filled < sizeof(message) + message.length)
		return 0;
	serve_frame(&message, in + sizeof(message), fair);
	return sizeof(message) + message.length;
}

static void serve(bool fair)
{
	ssize_t n;
	size_t used;

	if (host < 0)
		host = vg_connect_now(serial_path);
	if (host < 0)
		return;
	n = recv(host, in + filled, sizeof(in) - filled, MSG_DONTWAIT);
	if (!n)
		hang_up();
	if (n <= 0)
		return;
	filled += (size_t)n;
	while (!broken && (used = serve_one(fair))) {
		memmove(in, in + used, filled - used);
		filled -= used;
	}
	if (broken)
		hang_up();
}

/* Messages for lanes that may be there or not, and now and then what is none. */
static void lie(void)
{
	struct vg_message message = { VG_MESSAGE_MAGIC, VG_SERIAL_LANE_FIRST + (uint32_t)roll(LANES + 2),
				      1 + (uint32_t)roll(7), (uint32_t)roll(300) };
	uint8_t bytes[sizeof(message) + 300];

	if (message.kind == VG_KIND_LOST)
		return; /* then the lane's end is not asked for: the oracle would not know */
	fill(bytes, sizeof(bytes));
	memcpy(bytes, &message, sizeof(message));
	if (!roll(500)) {
		bytes[roll(16)] ^= 1;
		spoilt = true;
	}
	if (synced)
		send_to_agent(bytes, sizeof(message) + message.length);
	if (broken)
		hang_up();
}

/* ---- its processes ---- */

static void ask(struct peer *c)
{
	struct vg_agent_request request = { .magic = VG_AGENT_MAGIC, .version = VG_WIRE_VERSION };
	size_t length = sizeof(request);

	if (!roll(6))
		((uint8_t *)&request)[roll(sizeof(request))] ^= (uint8_t)(1 + roll(255));
	if (!roll(5))
		length = roll(sizeof(request));
	send_some(c->fd, &request, length);
	c->asked = length == sizeof(request);
}

static void speak(struct peer *c)
{
	struct vg_message message = { VG_MESSAGE_MAGIC, c->lane, roll(2) ? VG_KIND_FRAME : VG_KIND_BULK, (uint32_t)roll(2000) };
	uint8_t bytes[sizeof(message) + 2000];
	size_t length = sizeof(message) + message.length;

	fill(bytes, sizeof(bytes));
	memcpy(bytes, &message, sizeof(message));
	if (!roll(8))
		bytes[roll(sizeof(message))] ^= (uint8_t)(1 + roll(255));
	if (!roll(6))
		length = roll(length);
	send_some(c->fd, bytes, length);
}

static void hear(struct peer *c)
{
	struct vg_agent_answer got;
	uint8_t bytes[4096];

	if (c->lane) {
		if (!recv(c->fd, bytes, sizeof(bytes), MSG_DONTWAIT))
			vg_close_fd(&c->fd);
		return;
	}
	if (recv(c->fd, &got, sizeof(got), MSG_DONTWAIT) == sizeof(got) && got.magic == VG_AGENT_MAGIC && !got.error)
		c->lane = got.lane;
}

static void step(void)
{
	/* a tape is short: with few processes some of them get far */
	struct peer *c = &clients[tape && roll(12) ? roll(TAPE_CLIENTS) : roll(CLIENTS)];

	silent = silent ? silent - 1 : roll(3000) ? 0 : (unsigned)roll(3000);
	if (!silent && roll(3))
		serve(false);
	if (!roll(40))
		lie();
	if (!roll(30000))
		hang_up();
	if (c->fd < 0) {
		*c = (struct peer){ .fd = vg_connect_now(agent_path) };
	} else if (!roll(8)) {
		vg_close_fd(&c->fd);
	} else if (!c->asked) {
		ask(c);
	} else {
		hear(c);
		if (c->lane)
			speak(c);
	}
}

/* ---- the end ---- */

static bool is_all_given_back(void)
{
	for (unsigned i = 0; i < LANES; i++)
		if (lanes[i])
			return false;
	return true;
}

static struct peer last = { .fd = -1 };
static bool last_asked;

/* Lets the agent and a proper process come to terms; whether they have. */
static bool comes_to_terms(void)
{
	struct vg_agent_request request = { .magic = VG_AGENT_MAGIC, .version = VG_WIRE_VERSION };

	serve(true);
	if (last.fd < 0 && is_all_given_back() && synced && opened == closed)
		last = (struct peer){ .fd = vg_connect_now(agent_path) };
	if (last.fd < 0)
		return false;
	if (!last_asked)
		send_some(last.fd, &request, sizeof(request));
	last_asked = true;
	hear(&last);
	return last.lane;
}

static void begin_end(void)
{
	for (unsigned i = 0; i < CLIENTS; i++)
		vg_close_fd(&clients[i].fd);
	if (spoilt)
		hang_up();
}

static bool ends_badly(void)
{
	fprintf(stderr, "lanes given %llu, given back %llu, a process at the end %s\n", (unsigned long long)opened,
		(unsigned long long)closed, last.fd < 0 ? "was not tried" : "got none");
	return false;
}

static bool ends_well(void)
{
	uint64_t end = vg_now_ms() + END_MS;

	begin_end();
	for (; vg_now_ms() < end; usleep(500))
		if (comes_to_terms())
			return true;
	return ends_badly();
}

/* ---- a tape ---- */

static void play(void)
{
	tape_ms += TAPE_STEP_MS;
	for (uint64_t steps = 1 + roll(4); steps && tape < tape_end; steps--)
		step();
	if (tape < tape_end)
		return;
	if (!end_turns++)
		begin_end();
	tape_ms += TAPE_STEP_MS * 5;
	if (comes_to_terms())
		longjmp(tape_done, 1);
	if (end_turns > TAPE_END_TURNS)
		longjmp(tape_done, 2);
}

static int poll_and_step(struct pollfd *fds, nfds_t count, const struct timespec *pause, const sigset_t *mask)
{
	static const struct timespec none;

	if (tape)
		play();
	return ppoll(fds, count, tape ? &none : pause, mask);
}

static void play_all(const uint8_t *bytes, size_t size)
{
	int how;

	tape = bytes;
	tape_end = bytes + size;
	how = setjmp(tape_done);
	if (!how)
		loop(&agent);
	if (how == 2)
		ends_badly();
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
	size_t length;

	state = seed * 0x9e3779b97f4a7c15ull | 1;
	length = 1 + noise(room < TAPE_MAX ? room : TAPE_MAX);
	fill(bytes, length);
	return length;
}

static void *run(void *unused)
{
	loop(&agent);
	return unused;
}

int main(int argc, char **argv)
{
	char *words[] = { "agent", "--socket", agent_path, "--transport", "serial", "--serial-listen", serial_path, NULL };
	unsigned long steps = argc > 2 ? strtoul(argv[2], NULL, 0) : 0, total = 0, i;
	bool is_kept = argc > 1 && !strcmp(argv[1], "kept");
	pthread_t thread;

	if (argc < 4)
		return 2;
	state = strtoull(argv[1], NULL, 0) * 0x9e3779b97f4a7c15ull | 1;
	snprintf(agent_path, sizeof(agent_path), "%s/agent.sock", is_kept ? argv[2] : argv[3]);
	snprintf(serial_path, sizeof(serial_path), "%s/serial.sock", is_kept ? argv[2] : argv[3]);
	signal(SIGPIPE, SIG_IGN);
	if (parse(&agent, 7, words) || begin(&agent))
		return 2;
	for (i = 0; i < CLIENTS; i++)
		clients[i].fd = -1;
	if (is_kept)
		return kept_main(argc - 3, argv + 3, make_tape);
	pthread_create(&thread, NULL, run, NULL);
	/* on a busy machine the agent's thread gets less time: then there are more steps, to reach as much */
	for (i = 0; i < steps || (total < LEAST_LANES && i < MOST_STEPS * steps); i++) {
		uint64_t before = opened;

		step();
		if (i % 16 == 0)
			usleep(10); /* the agent's thread runs */
		total += opened > before ? opened - before : 0;
	}
	if (!ends_well())
		return 1;
	printf("%lu steps, %lu lanes, %llu messages\n", i, total, (unsigned long long)relayed);
	_exit(fflush(stdout));
}
