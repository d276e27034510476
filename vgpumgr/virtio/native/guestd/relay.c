/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A relay copies the frames of one process between that process's private memory and its lane in the window. It maps
 * only these two and the window's header, and has a user ID that no other process has. The process can change its memory
 * at any time: the relay fetches each word and header once, checks its copy and uses only that copy. It copies payload and
 * bulk without reading them, and never reads the words that only the relay writes.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

#include "agent.h"

enum {
	SPINS = 20,              /* looks at both sides before others may run, */
	YIELDS = 300,            /* and before it sleeps */
	SLEEP_NS = 50000,
	SLEEP_MAX_NS = 1000000,
	SLEEPS_PER_STEP = 16,
	BEAT_ROUNDS = 16,
	BATCH = 16384,           /* bytes of frames that are published at once */
	FULL_LIMIT_MS = 10000,   /* a process that leaves its reply ring full for so long does not want its replies */
};

struct side {
	struct vg_control *control;
	struct vg_ring submit, reply;
	uint8_t *window;
};

struct relay_process {
	struct relay_job job;
	struct side lane, client; /* in the window, in the client's memory */
	struct vg_header *header, *client_header;
	vg_word64 unpublished;   /* stands for the lane's submit_head while a batch is copied */
	volatile uint32_t *bar;
	int doorbell, client_doorbell;
	struct { uint32_t offset, length; } bulk_out[VG_SLOTS];
	uint64_t calls;          /* whose reply has not come */
	uint64_t released;       /* what the client's submit_tail says */
	uint64_t full_ms;        /* since when its reply ring is full; 0: it is not */
};

static struct relay_process relay;

/* ---- the end ---- */

static _Noreturn void end(const char *why)
{
	if (relay.client.control)
		vg_store64(&relay.client.control->life, 0);
	if (*why)
		send(RELAY_SOCKET, why, strlen(why), MSG_NOSIGNAL | MSG_DONTWAIT);
	_exit(*why != '\0');
}

/* The agent has ended, or the device has gone. */
static void on_signal(int number)
{
	(void)number;
	end("");
}

/* ---- from the client to the lane ---- */

static bool is_inside(const struct vg_frame_header *header)
{
	return (uint64_t)header->bulk_offset + header->bulk_length <= relay.job.layout.window_size;
}

static void take_bulk(const struct vg_frame_header *header)
{
	if (!(header->flags & (VG_HAS_BULK_IN | VG_HAS_BULK_OUT)))
		return;
	if (!is_inside(header))
		end("bulk outside of its window");
	if (header->flags & VG_HAS_BULK_IN)
		vg_copy_in(relay.lane.window + header->bulk_offset, relay.client.window + header->bulk_offset,
			   header->bulk_length);
	if (header->flags & VG_HAS_BULK_OUT) {
		relay.bulk_out[header->sequence % VG_SLOTS].offset = header->bulk_offset;
		relay.bulk_out[header->sequence % VG_SLOTS].length = header->bulk_length;
	}
}

/* A frame or a reply whose header was checked, where there is room for it. */
static void copy_frame(struct vg_ring *from, struct vg_ring *to, const void *header, uint32_t length)
{
	uint8_t *place = vg_ring_place(to, length);

	vg_copy_in(place + VG_ALIGN, vg_ring_payload(from), length - VG_ALIGN);
	vg_copy_out(place, header, VG_ALIGN);
	vg_ring_publish(to, length);
	vg_ring_consume(from, length);
}

static void ring_worker(void)
{
	uint64_t one = 1;

	vg_full_fence();
	if (!vg_load32(&relay.lane.control->parked))
		return;
	if (relay.bar)
		*relay.bar = VG_DOORBELL_VALUE;
	else if (write(relay.doorbell, &one, sizeof(one)) < 0)
		return;
}

/* One frame; false: there is no room for it in the lane now. */
static bool take_frame(const struct vg_frame_header *header)
{
	struct vg_ring *from = &relay.client.submit, *to = &relay.lane.submit;
	int error = vg_ring_room(to, header->length);

	if (error == -EAGAIN)
		return false;
	if (error)
		end("the lane is damaged");
	take_bulk(header);
	copy_frame(from, to, header, header->length);
	/* positions are the same on both sides, so that the lane's tail is the client's */
	if (to->mine != from->mine)
		end("a frame at a place that cannot be");
	if (header->flags & VG_WANTS_REPLY)
		relay.calls++;
	return true;
}

/* Whether there was anything to copy. */
static bool take_frames(void)
{
	struct vg_ring *from = &relay.client.submit;
	uint64_t begin = from->mine;
	struct vg_frame_header header;
	bool more = true;

	while (more && from->mine - begin < BATCH) {
		int error;

		if (from->mine == from->theirs) {
			int64_t waiting = vg_ring_waiting(from);

			if (waiting < 0)
				end("a submission index that cannot be");
			if (!waiting)
				break;
		}
		error = vg_ring_next(from, &header);
		if (error == -EBADMSG)
			end("a frame of impossible length");
		if (!error)
			more = take_frame(&header) && !(header.flags & VG_HAS_BULK_IN);
	}
	if (from->mine == begin)
		return false;
	vg_store64(&relay.lane.control->submit_head, relay.lane.submit.mine);
	ring_worker();
	return true;
}

/* What the worker is done with, the client may use again. */
static void release_frames(void)
{
	uint64_t tail = vg_load64(&relay.lane.control->submit_tail);

	if (tail == relay.released || relay.lane.submit.mine - tail > relay.lane.submit.size)
		return;
	relay.released = tail;
	vg_store64(&relay.client.control->submit_tail, tail);
}

/* ---- from the lane to the client ---- */

static void give_bulk(const struct vg_reply_header *header)
{
	uint32_t slot = header->sequence % VG_SLOTS;

	if (!(header->flags & VG_HAS_BULK_OUT))
		return;
	if (header->bulk_length > relay.bulk_out[slot].length)
		end("the worker answered more than it was asked");
	vg_copy_out(relay.client.window + relay.bulk_out[slot].offset, relay.lane.window + relay.bulk_out[slot].offset,
		    header->bulk_length);
}

/* False: the client's ring is full. */
static bool give_reply(const struct vg_reply_header *header)
{
	struct vg_ring *from = &relay.lane.reply, *to = &relay.client.reply;
	int error = vg_ring_room(to, header->length);

	if (error == -EBADMSG)
		end("a reply index that cannot be");
	if (error)
		return false;
	give_bulk(header);
	copy_frame(from, to, header, header->length);
	vg_ring_release(from);
	if (relay.calls)
		relay.calls--;
	return true;
}

static bool give_replies(void)
{
	struct vg_ring *from = &relay.lane.reply;
	int64_t waiting = vg_ring_waiting(from);
	uint64_t begin = from->mine;
	struct vg_reply_header header;
	bool room = true;

	while (waiting > 0 && room && from->mine != from->theirs) {
		int error = vg_ring_next(from, &header);

		if (error == -EBADMSG)
			waiting = error;
		else if (!error)
			room = give_reply(&header);
	}
	if (waiting < 0)
		end("the lane is damaged");
	if (room)
		relay.full_ms = 0;
	else if (!relay.full_ms)
		relay.full_ms = vg_now_ms();
	return from->mine != begin;
}

/* ---- waiting ---- */

/* Something will come from the worker, which has no way to wake us, or has to go there and there is no room. */
static bool is_busy(void)
{
	return relay.calls || relay.full_ms || relay.released != relay.lane.submit.mine ||
	       relay.client.submit.mine != relay.client.submit.theirs;
}

static void sleep_a_little(unsigned sleeps)
{
	unsigned step = sleeps / SLEEPS_PER_STEP;
	long ns = step < 5 ? (long)SLEEP_NS << step : SLEEP_MAX_NS;
	struct timespec pause = { .tv_nsec = ns < SLEEP_MAX_NS ? ns : SLEEP_MAX_NS };

	if (sleeps % BEAT_ROUNDS == 0)
		vg_store64(&relay.client_header->heartbeat, vg_load64(&relay.header->heartbeat));
	if (relay.full_ms && vg_now_ms() - relay.full_ms > FULL_LIMIT_MS)
		end("a reply ring left full");
	nanosleep(&pause, NULL);
}

/* Nothing is on its way in either direction: until the client rings, or the agent ends. */
static void park(void)
{
	struct pollfd wait[] = { { relay.client_doorbell, POLLIN, 0 }, { RELAY_SOCKET, POLLIN, 0 } };
	uint64_t count;

	vg_store32(&relay.client.control->parked, 1);
	vg_full_fence();
	if (vg_load64(&relay.client.control->submit_head) == relay.client.submit.mine &&
	    poll(wait, 2, -1) > 0 && wait[1].revents)
		end("");
	vg_store32(&relay.client.control->parked, 0);
	/* the client may have taken the count away, and then waits for itself alone */
	if ((wait[0].revents & POLLIN) && read(relay.client_doorbell, &count, sizeof(count)) < 0)
		return;
}

static void wait_a_round(unsigned round)
{
	/* the worker answers soon; the client may need this very processor to say more */
	if (round < SPINS && is_busy())
		vg_pause();
	else if (round < SPINS + YIELDS)
		sched_yield();
	else if (is_busy())
		sleep_a_little(round - SPINS - YIELDS);
	else
		park();
}

static _Noreturn void copy_frames(void)
{
	unsigned round = 0;

	for (;;) {
		bool moved;

		if (vg_load64(&relay.lane.control->life) != relay.job.generation)
			end("");
		moved = take_frames();
		moved |= give_replies();
		release_frames();
		if (moved) {
			round = 0;
			continue;
		}
		wait_a_round(round);
		/* after a wake-up without a frame it sleeps again at once: each doorbell would make it spin otherwise */
		round += round < SPINS + YIELDS || is_busy();
	}
}

/* ---- the beginning ---- */

static void *map(int fd, size_t size, uint64_t offset, int protection)
{
	void *memory = mmap(NULL, size, protection, MAP_SHARED, fd, (off_t)offset);

	if (memory == MAP_FAILED)
		end("cannot map the lane");
	return memory;
}

static void place(struct side *side, uint8_t *lane)
{
	const struct vg_layout *layout = &relay.job.layout;
	struct vg_control *control = (struct vg_control *)lane;
	uint8_t *base = lane + VG_PAGE;

	side->control = control;
	vg_ring_init(&side->submit, base, layout->submit_size, &control->submit_head, &control->submit_tail);
	base += layout->submit_size;
	vg_ring_init(&side->reply, base, layout->reply_size, &control->reply_head, &control->reply_tail);
	side->window = base + layout->reply_size;
}

/* Only what the lane needs: of the window the header's page, and the lane itself. */
static void map_all(int fds[RELAY_FDS])
{
	const struct relay_job *job = &relay.job;
	uint64_t offset = VG_LANES_OFFSET + (uint64_t)(job->lane - 1) * job->layout.lane_size;
	uint8_t *memory = map(fds[2], VG_LANES_OFFSET + job->layout.lane_size, 0, PROT_READ | PROT_WRITE);

	relay.client_header = (struct vg_header *)memory;
	place(&relay.client, memory + VG_LANES_OFFSET);
	relay.header = map(fds[0], VG_PAGE, 0, PROT_READ);
	place(&relay.lane, map(fds[0], job->layout.lane_size, offset, PROT_READ | PROT_WRITE));
	relay.lane.submit.head = &relay.unpublished;
	if (job->doorbell_kind == VG_DOORBELL_BAR)
		relay.bar = (volatile uint32_t *)((uint8_t *)map(fds[1], VG_PAGE, 0, PROT_READ | PROT_WRITE) +
						  VG_DOORBELL_OFFSET);
	relay.doorbell = relay.bar ? -1 : fds[1];
	relay.client_doorbell = fds[3];
	close(fds[0]);
	close(fds[2]);
	if (relay.bar)
		close(fds[1]);
}

/* The agent's rights are not needed to copy. */
static void drop_rights(void)
{
	uid_t id = relay.job.identity;

	if (id && (setgroups(0, NULL) || setresgid(id, id, id) || setresuid(id, id, id)))
		end("cannot become a user of its own");
	/* after the change of user, which takes it away */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	prctl(PR_SET_DUMPABLE, 0);
	if (getppid() != relay.job.agent)
		end("");
	if (agent_lock_down())
		end("cannot restrict its system calls");
}

int relay_main(void)
{
	struct sigaction action = { .sa_handler = on_signal };
	int fds[RELAY_FDS];

	prctl(PR_SET_NAME, "vgpumgr-lane");
	if (vg_recv_fds(RELAY_SOCKET, &relay.job, sizeof(relay.job), fds, RELAY_FDS))
		return 0; /* the client has gone before it had a lane */
	for (unsigned i = 0; i < RELAY_FDS; i++)
		if (fds[i] < 0)
			return 1;
	map_all(fds);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
	drop_rights();
	copy_frames();
}
