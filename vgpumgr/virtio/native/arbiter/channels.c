/* SPDX-License-Identifier: Apache-2.0 */
#include "channels.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "../transport/util.h"

#define SECOND_NS 1000000000ull
#define BELL_NS 10000000ull      /* a bell that rings more often than RINGS in this time is not heard until its end */
#define NAME_AGAIN_NS (10 * SECOND_NS) /* a line about one channel is written no more often */
#define REFRESH_NS 100000000ull  /* accounts of channels that run are not older */

enum { RINGS = 1000, AGAIN = 8 };

uint64_t channels_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

void channels_init(struct channels *all, enum arb_kind kind)
{
	arb_init(&all->policy, kind, channels_clock());
	for (unsigned i = 0; i < CLIENTS; i++)
		all->client[i] = (struct client){ .fd = -1, .bell = -1, .number = ARB_NONE };
}

/* ---- a keeper comes, says what it wants, and goes */

static void drop_page(struct client *c)
{
	if (c->page)
		munmap(c->page, VG_SHARE_SIZE);
	c->page = NULL;
	vg_close_fd(&c->bell);
	c->wants = c->busy = false;
}

static void drop(struct channels *all, struct client *c)
{
	drop_page(c);
	if (c->account)
		munmap(c->account, VG_ACCOUNT_SIZE);
	if (c->number != ARB_NONE) {
		arb_leave(&all->policy, c->number, channels_clock());
		all->joined--;
	}
	vg_close_fd(&c->fd);
	*c = (struct client){ .fd = -1, .bell = -1, .number = ARB_NONE };
}

void channels_accept(struct channels *all, int listener)
{
	VG_FD int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	for (unsigned i = 0; fd >= 0 && i < CLIENTS; i++) {
		if (all->client[i].fd >= 0)
			continue;
		all->client[i].fd = fd;
		fd = -1;
	}
}

static int answer(const struct client *c, enum vg_share_what what, const char *text, int fd)
{
	struct vg_share_message message = { .what = what };

	snprintf(message.text, sizeof(message.text), "%s", text);
	return vg_send_fds(c->fd, &message, sizeof(message), &fd, fd >= 0);
}

/* The keeper can read it, and not shorten it. */
static int make_account(struct client *c)
{
	VG_FD int fd = memfd_create("vgpumgr-share-account", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *memory;

	if (fd < 0 || ftruncate(fd, VG_ACCOUNT_SIZE) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
		return -errno;
	memory = mmap(NULL, VG_ACCOUNT_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		return -errno;
	c->account = memory;
	fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL); /* since Linux 5.1 */
	return answer(c, VG_SHARE_WELCOME, "", fd);
}

static bool is_weight(const struct vg_share_message *message)
{
	return message->compute >= ARB_LEAST && message->compute <= ARB_WHOLE && message->priority <= ARB_HIGH;
}

static int join(struct channels *all, struct client *c, const struct vg_share_message *message)
{
	bool fixed;
	int error;

	/* one that only lingers is the next channels', whatever their policy */
	if (!all->joined && !message->fixed == (all->policy.kind == ARB_FIXED))
		arb_init(&all->policy, message->fixed ? ARB_FIXED : ARB_BURST, channels_clock());
	fixed = all->policy.kind == ARB_FIXED;
	if (c->number != ARB_NONE || !is_weight(message))
		return -EPROTO;
	if (!message->fixed == fixed) {
		answer(c, VG_SHARE_REFUSED,
		       fixed ? "the GPU's arbiter has the policy fixed" : "the GPU's arbiter has the policy burst", -1);
		return -EBUSY;
	}
	c->number = arb_join(&all->policy, message->compute, (enum arb_class)message->priority, channels_clock());
	if (c->number == ARB_NONE) {
		answer(c, VG_SHARE_REFUSED, "the GPU's arbiter has as many channels as it can have", -1);
		return -EBUSY;
	}
	all->joined++;
	vg_clean_text(c->name, sizeof(c->name), message->text, sizeof(message->text));
	error = make_account(c);
	if (!error)
		vg_store32(&c->account->fixed, fixed);
	return error;
}

/* Memory that can become smaller would end us by a signal. */
static struct vg_share_page *map_page(int fd)
{
	struct stat status;
	void *memory;

	if (fd < 0 || fstat(fd, &status) || status.st_size != VG_SHARE_SIZE || !(fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK))
		return NULL;
	memory = mmap(NULL, VG_SHARE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return memory == MAP_FAILED ? NULL : memory;
}

static bool is_bell(int fd)
{
	int type = 0;
	socklen_t size = sizeof(type);

	return fd >= 0 && !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) && type == SOCK_DGRAM;
}

/* A new worker's; the account goes on. */
static int take_page(struct client *c, int *fds)
{
	if (c->number == ARB_NONE || !is_bell(fds[1]))
		return -EPROTO;
	drop_page(c);
	c->page = map_page(fds[0]);
	if (!c->page)
		return -EPROTO;
	c->bell = fds[1];
	fds[1] = -1;
	c->turn = VG_TURN_CLOSED;
	vg_store32(&c->page->turn, VG_TURN_CLOSED);
	return 0;
}

static int weigh(struct channels *all, const struct client *c, const struct vg_share_message *message)
{
	if (c->number == ARB_NONE || !is_weight(message))
		return -EPROTO;
	arb_weigh(&all->policy, c->number, message->compute, (enum arb_class)message->priority, channels_clock());
	return 0;
}

static int obey(struct channels *all, struct client *c, const struct vg_share_message *message, int *fds)
{
	switch (message->what) {
	case VG_SHARE_JOIN:
		return join(all, c, message);
	case VG_SHARE_PAGE:
		return take_page(c, fds);
	case VG_SHARE_WEIGH:
		return weigh(all, c, message);
	case VG_SHARE_PING:
		return answer(c, VG_SHARE_WELCOME, "", -1);
	default:
		return -EPROTO;
	}
}

/* Poll says that something is there, so that this does not wait. */
static void listen_to(struct channels *all, struct client *c)
{
	struct vg_share_message message;
	int fds[2], error = vg_recv_fds(c->fd, &message, sizeof(message), fds, 2);

	if (!error)
		error = obey(all, c, &message, fds);
	vg_close_fd(&fds[0]);
	vg_close_fd(&fds[1]);
	if (error)
		drop(all, c);
}

/* ---- bells */

static bool is_heard(const struct client *c, uint64_t now)
{
	return c->bell >= 0 && (c->rings < RINGS || now >= c->bell_until);
}

/* What it says stands in the page. */
static void hear(struct client *c, uint64_t now)
{
	char bytes[8];
	unsigned rings = 0;

	while (rings < RINGS && recv(c->bell, bytes, sizeof(bytes), MSG_DONTWAIT) >= 0)
		rings++;
	if (now >= c->bell_until) {
		c->bell_until = now + BELL_NS;
		c->rings = 0;
	}
	c->rings += rings ? rings : 1; /* one that is broken */
}

void channels_wait_for(const struct channels *all, struct pollfd *wait)
{
	uint64_t now = channels_clock();

	for (unsigned i = 0; i < CLIENTS; i++) {
		const struct client *c = &all->client[i];

		wait[i] = (struct pollfd){ c->fd, POLLIN, 0 };
		wait[CLIENTS + i] = (struct pollfd){ is_heard(c, now) ? c->bell : -1, POLLIN, 0 };
	}
}

void channels_serve(struct channels *all, const struct pollfd *wait)
{
	uint64_t now = channels_clock();

	for (unsigned i = 0; i < CLIENTS; i++) {
		struct client *c = &all->client[i];

		if (c->bell >= 0 && wait[CLIENTS + i].revents && wait[CLIENTS + i].fd == c->bell)
			hear(c, now);
		if (c->fd >= 0 && wait[i].revents && wait[i].fd == c->fd)
			listen_to(all, c);
	}
}

/* ---- pages */

/* A launch that is being made is seen in `work`, or has made its lane busy before it left there: so this order. */
static void read_page(struct client *c)
{
	c->wants = c->busy = false;
	for (unsigned i = 0; c->page && i < VG_LANE_TABLE; i++) {
		struct vg_share_row *row = &c->page->row[i];

		if ((uint32_t)atomic_load(&row->work) || atomic_load(&row->busy))
			c->busy = true;
		if (vg_load32(&row->wants))
			c->wants = true;
	}
}

/* True: a turn was closed, so that the page must be read again. */
static bool tell(struct client *c, enum arb_turn turn)
{
	static const uint32_t words[] = {
		[ARB_CLOSED] = VG_TURN_CLOSED, [ARB_OPEN] = VG_TURN_OPEN, [ARB_CONTENDED] = VG_TURN_CONTENDED,
	};

	if (!c->page || c->turn == words[turn])
		return false;
	c->turn = words[turn];
	atomic_exchange(&c->page->turn, c->turn);
	syscall(SYS_futex, &c->page->turn, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	return turn == ARB_CLOSED;
}

/* Who does not give back its turn is named, so that its guest can be found. */
static void name_overdue(struct client *c, const struct arb_channel *state, uint64_t now)
{
	if (!state->overdue || c->overdue) {
		c->overdue = state->overdue;
		return;
	}
	c->overdue = true;
	c->overdue_from = now - ARB_PATIENCE_NS;
	if (c->named_ns && now - c->named_ns < NAME_AGAIN_NS)
		return;
	c->named_ns = now;
	fprintf(stderr,
		"arbiter: channel %s does not give back its turn: work of it has been on the GPU for more than %llu ms; "
		"others go on beside it\n",
		c->name, ARB_PATIENCE_NS / 1000000);
}

static void publish(struct client *c, const struct arb_channel *state, uint64_t now)
{
	name_overdue(c, state, now);
	vg_store64(&c->account->used_ns, state->used_ns);
	vg_store64(&c->account->throttled_ns, state->throttled_ns);
	vg_store64(&c->account->turns, state->turns);
	vg_store64(&c->account->overdue_ns, state->overdue ? now - c->overdue_from : 0);
	vg_store32(&c->account->compute, state->weight);
}

static uint64_t decide_once(struct channels *all, bool *again)
{
	uint64_t until, now;
	bool active = false;

	for (unsigned i = 0; i < CLIENTS; i++)
		read_page(&all->client[i]);
	now = channels_clock();
	for (unsigned i = 0; i < CLIENTS; i++) {
		struct client *c = &all->client[i];

		active = active || c->wants || c->busy;
		if (c->number != ARB_NONE)
			arb_report(&all->policy, c->number, c->wants, c->busy, now);
	}
	until = arb_decide(&all->policy, now);
	*again = false;
	for (unsigned i = 0; i < CLIENTS; i++) {
		struct client *c = &all->client[i];

		if (c->number == ARB_NONE)
			continue;
		*again |= tell(c, all->policy.channel[c->number].turn);
		publish(c, &all->policy.channel[c->number], now);
	}
	return active && until > now + REFRESH_NS ? now + REFRESH_NS : until;
}

uint64_t channels_decide(struct channels *all)
{
	bool again = true;
	uint64_t until = 0;

	for (unsigned i = 0; again && i < AGAIN; i++)
		until = decide_once(all, &again);
	return again ? channels_clock() : until;
}
