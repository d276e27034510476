/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes as the server has them: opened for a guest process, given to a session, free again once that has ended. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "util.h"
#include "worker.h"

enum {
#ifdef __SANITIZE_ADDRESS__
	GRACE_MS = 20000,        /* a session also looks for what it has not freed */
#else
	GRACE_MS = 500,          /* from the close of a lane to the SIGKILL of its session */
#endif
	SPARE_PAUSE_MS = 30,     /* the next spare starts when a new process has made its first calls */
};

/* Entries are used in turn: the longer a lane rests, the less a late store of its last owner matters. */
static struct vg_entry *take_entry(struct vg_server *server, bool ring)
{
	uint32_t first = ring ? 1 : VG_SERIAL_LANE_FIRST;
	uint32_t count = ring ? server->layout.lane_count : VG_SERIAL_LANES;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t number = first + (server->next_lane[!ring] + i) % count;
		struct vg_entry *entry = &server->entry[number];

		if (entry->state != LANE_FREE)
			continue;
		server->next_lane[!ring] = (number - first + 1) % count;
		*entry = (struct vg_entry){ .number = number, .ring = ring, .session = VG_NO_SESSION };
		entry->last = &entry->first;
		entry->stats = &server->stats->lane[number];
		entry->words = &server->stats->words[number];
		return entry;
	}
	return NULL;
}

static struct vg_peer describe(struct vg_server *server, struct vg_entry *entry, const struct vg_open *open)
{
	struct vg_peer peer = { .lane = entry->number, .pid = open->pid, .ring = entry->ring };
	struct vg_lane_stats *stats = entry->stats;

	vg_clean_text(peer.name, sizeof(peer.name), open->name, sizeof(open->name));
	vg_clean_text(peer.api_version, sizeof(peer.api_version), open->api_version, sizeof(open->api_version));
	memset(stats, 0, sizeof(*stats));
	memset(entry->words, 0, sizeof(*entry->words));
	memset(server->watch->thread[entry->number], 0, sizeof(server->watch->thread[0]));
	memset(server->seen[entry->number], 0, sizeof(server->seen[0]));
	memcpy(entry->name, peer.name, sizeof(entry->name));
	entry->user = open->user;
	memcpy(stats->name, peer.name, sizeof(stats->name));
	vg_store32(&stats->pid, open->pid);
	vg_store32(&stats->ring, entry->ring);
	vg_store64(&stats->since_s, (uint64_t)time(NULL));
	vg_store32(&stats->used, 1);
	return peer;
}

/* The spare, which reads its orders once it has started; without one a session that starts now. */
static int take_session(struct vg_server *server, struct vg_entry *entry, const struct vg_peer *peer)
{
	struct vg_serve serve = { .generation = entry->generation, .peer = *peer };
	int error = server->spare.pid ? 0 : vg_session_spawn(server, &server->spare);

	if (error)
		return error;
	entry->session = server->spare;
	server->spare = VG_NO_SESSION;
	server->spare_ms = vg_now_ms() + SPARE_PAUSE_MS;
	vg_store32(&entry->words->pid, (uint32_t)entry->session.pid);
	/* one that has died meanwhile is found by the reaping */
	vg_session_tell(entry->session.socket, VG_SESSION_SERVE, &serve, sizeof(serve));
	/* one that waits for its lane reads what the guest writes from now on: nobody waits for it to say so */
	if (entry->session.ready && !server->ops->refuses)
		vg_entry_answer(server, entry, 0, "");
	return 0;
}

static struct vg_entry *make_entry(struct vg_server *server, bool ring)
{
	struct vg_entry *entry = take_entry(server, ring);

	if (!entry)
		return NULL;
	entry->hello = server->hellos[!ring];
	entry->generation = (uint64_t)server->epoch << 32 | ++server->counter;
	if (ring) {
		entry->control = vg_lane_at(server->memory, &server->layout, entry->number);
		vg_lane_clear(entry->control);
		vg_store64(&entry->control->life, entry->generation);
	}
	entry->state = LANE_OPEN;
	return entry;
}

/* Gives it to a process. What fails is answered by the caller. */
static int begin(struct vg_server *server, struct vg_entry *entry, const struct vg_open *open)
{
	struct vg_peer peer = describe(server, entry, open);
	int error;

	vg_store64(&server->stats->lanes_opened, vg_load64(&server->stats->lanes_opened) + 1);
	error = take_session(server, entry, &peer);
	if (error) {
		entry->answered = true;
		vg_entry_free(server, entry);
	}
	return error;
}

int vg_entry_open(struct vg_server *server, bool ring, const struct vg_open *open, uint32_t sequence)
{
	struct vg_entry *entry = make_entry(server, ring);

	if (!entry)
		return -EUSERS;
	entry->open_sequence = sequence;
	return begin(server, entry, open);
}

int vg_entry_reserve(struct vg_server *server, struct vg_opened *opened)
{
	struct vg_entry *entry;

	if (!server->spare.ready || server->ops->refuses) /* a process that comes now shall hear why there is no session for it */
		return -EAGAIN;
	entry = make_entry(server, true);
	if (!entry)
		return -EUSERS;
	entry->reserved = entry->answered = true;
	*opened = (struct vg_opened){ .lane = entry->number, .generation = entry->generation };
	return 0;
}

int vg_entry_claim(struct vg_server *server, const struct vg_claim *claim)
{
	uint32_t number = claim->lane.lane;
	struct vg_entry *entry = number < VG_LANE_TABLE ? &server->entry[number] : NULL;

	if (!entry || !entry->reserved || entry->generation != claim->lane.generation)
		return -ESTALE;
	entry->reserved = false;
	return begin(server, entry, &claim->open);
}

static void unreserve(struct vg_entry *entry)
{
	vg_store64(&entry->control->life, 0);
	entry->reserved = false;
	entry->state = LANE_FREE;
	entry->generation = 0;
}

void vg_entries_unreserve(struct vg_server *server)
{
	for (unsigned i = 1; i < VG_LANE_TABLE; i++)
		if (server->entry[i].reserved)
			unreserve(&server->entry[i]);
}

void vg_entry_answer(struct vg_server *server, struct vg_entry *entry, int error, const char *text)
{
	struct vg_lane *control = entry->ring ? &server->control_ring : &server->control_serial;
	struct vg_opened opened = { .lane = entry->number, .generation = entry->generation };

	/* an agent that has said hello again does not wait for this */
	if (entry->answered || entry->hello != server->hellos[!entry->ring])
		return;
	entry->answered = true;
	if (error)
		vg_answer(control, entry->open_sequence, error, text, strlen(text) + 1, 0);
	else
		vg_answer(control, entry->open_sequence, 0, &opened, sizeof(opened), 0);
}

/* ---- messages to a serial lane's session, which need not read them at once ---- */

static int keep(struct vg_entry *entry, const void *message, size_t length)
{
	struct parcel *parcel = malloc(sizeof(*parcel) + length);

	if (!parcel)
		return -ENOMEM;
	*parcel = (struct parcel){ .length = length };
	memcpy(parcel->bytes, message, length);
	*entry->last = parcel;
	entry->last = &parcel->next;
	return 0;
}

static void drop_first(struct vg_entry *entry)
{
	struct parcel *parcel = entry->first;

	entry->first = parcel->next;
	if (!entry->first)
		entry->last = &entry->first;
	free(parcel);
}

void vg_entry_flush(struct vg_entry *entry)
{
	while (entry->first) {
		if (send(entry->session.socket, entry->first->bytes, entry->first->length,
			 MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			return;
		drop_first(entry);
	}
}

int vg_entry_deliver(struct vg_server *server, struct vg_entry *entry, const void *message, size_t length)
{
	/* a lane that has just ended: its process will hear of it */
	if (entry->state != LANE_OPEN)
		return 0;
	entry->uncredited += length;
	if (entry->uncredited > VG_SERIAL_CREDIT) {
		vg_report_violation(server, entry->number, false, "more bytes than it has credit for");
		vg_entry_close(entry);
		return 0;
	}
	if (!entry->first &&
	    send(entry->session.socket, message, length, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)length)
		return 0;
	return keep(entry, message, length);
}

/* ---- the end ---- */

void vg_entry_close(struct vg_entry *entry)
{
	if (entry->state != LANE_OPEN)
		return;
	if (entry->reserved)
		return unreserve(entry);
	entry->state = LANE_CLOSING;
	if (entry->control)
		vg_store64(&entry->control->life, 0);
	vg_store32(&entry->words->closing, 1);
	vg_words_wake(entry->words);
	if (!entry->ring)
		shutdown(entry->session.socket, SHUT_WR);
	entry->session.kill_ms = vg_now_ms() + GRACE_MS;
}

void vg_entries_close(struct vg_server *server, bool ring)
{
	for (unsigned i = 1; i < VG_LANE_TABLE; i++)
		if (server->entry[i].ring == ring)
			vg_entry_close(&server->entry[i]);
}

static void add_total(vg_word64 *total, const vg_word64 *part)
{
	vg_store64(total, vg_load64(total) + vg_load64(part));
}

void vg_entry_free(struct vg_server *server, struct vg_entry *entry)
{
	struct vg_stats *stats = server->stats;

	vg_entry_answer(server, entry, -EIO,
			server->failure[0] ? server->failure : "the worker has lost this process's session");
	if (entry->control)
		vg_store64(&entry->control->life, 0);
	if (!entry->ring)
		vg_stream_send(server, entry->number, VG_KIND_LOST, NULL, 0, NULL, 0);
	add_total(&stats->calls, &entry->stats->calls);
	add_total(&stats->posts, &entry->stats->posts);
	add_total(&stats->bytes_in, &entry->stats->bytes_in);
	add_total(&stats->bytes_out, &entry->stats->bytes_out);
	vg_store32(&entry->stats->used, 0);
	while (entry->first)
		drop_first(entry);
	entry->state = LANE_FREE;
	entry->generation = 0;
}
