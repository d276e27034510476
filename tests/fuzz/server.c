/* SPDX-License-Identifier: Apache-2.0 */
#include "server.h"

#include <assert.h>
#include <stdlib.h>

#include "../../vgpumgr/virtio/native/transport/util.h"
#include "window.h"

static const uint64_t words[] = { 1ull << VG_ID_SHIFT | 7, 2ull << VG_ID_SHIFT | 7, 9ull << VG_ID_SHIFT | 7 };
const struct vg_interface server_interface = { words, 3, { 1, 2, 3 } };
static const struct vg_session_ops ops;

struct vg_server server;
static pid_t last_pid;
static unsigned sessions; /* that there are */
static uint32_t epoch;
static bool no_session;

int vg_session_spawn(struct vg_server *s, struct vg_session *session)
{
	(void)s;
	if (no_session)
		return -EAGAIN;
	*session = VG_NO_SESSION;
	session->pid = ++last_pid;
	sessions++;
	return 0;
}

void server_refuse_sessions(bool refuses)
{
	no_session = refuses;
}

void server_begin(void)
{
	server = (struct vg_server){ .interface = &server_interface, .ops = &ops, .memory = window.memory,
				     .header = (struct vg_header *)window.memory, .layout = window.layout,
				     .keeper = -1, .serial = -1, .epoch = ++epoch, .spare = VG_NO_SESSION,
				     .api_version = "1.0", .device = "device" };
	server.stats = aligned_alloc(128, VG_STATS_SIZE);
	server.watch = aligned_alloc(64, sizeof(*server.watch));
	memset(server.stats, 0, VG_STATS_SIZE);
	server.control_ring.server = server.control_serial.server = &server;
	server.control_ring.ring = true;
	server.control_ring.words = &server.control_words[0];
	server.control_serial.words = &server.control_words[1];
	server.control_ring.socket = server.control_serial.socket = -1;
	no_session = false;
}

void server_end(void)
{
	for (uint32_t i = 0; i <= server.layout.lane_count; i++)
		vg_store64(&vg_lane_at(server.memory, &server.layout, i)->life, 0);
	vg_store32(&server.header->state, VG_STATE_LOST);
	free(server.stats);
	free(server.watch);
	sessions = 0;
}

/* ---- what nobody else may change ---- */

static void check_entry(const struct vg_entry *entry, uint32_t number)
{
	if (entry->state == LANE_FREE)
		return;
	assert(entry->ring && entry->number == number && number >= 1 && number <= server.layout.lane_count);
	assert(entry->control == vg_lane_at(server.memory, &server.layout, number));
	assert(entry->generation >> 32 == server.epoch);
	assert(entry->reserved ? !entry->session.pid && entry->state == LANE_OPEN : entry->session.pid > 0);
	for (uint32_t i = 1; i < number; i++)
		assert(!entry->session.pid || server.entry[i].state == LANE_FREE ||
		       server.entry[i].session.pid != entry->session.pid);
}

static void check(void)
{
	unsigned count = server.spare.pid > 0;

	for (uint32_t i = 0; i < VG_LANE_TABLE; i++) {
		check_entry(&server.entry[i], i);
		count += server.entry[i].state != LANE_FREE && server.entry[i].session.pid > 0;
	}
	assert(count == sessions);
}

unsigned long server_opened(void)
{
	return server.stats ? vg_load64(&server.stats->lanes_opened) : 0;
}

unsigned server_held(void)
{
	unsigned count = 0;

	for (uint32_t i = 1; i < VG_LANE_TABLE; i++)
		count += server.entry[i].state != LANE_FREE && !server.entry[i].reserved;
	return count;
}

/* ---- its turns ---- */

static void end_session(struct vg_entry *entry)
{
	sessions--;
	vg_entry_free(&server, entry);
}

void server_end_sessions(bool crash)
{
	for (uint32_t i = 1; i < VG_LANE_TABLE; i++) {
		struct vg_entry *entry = &server.entry[i];

		if (entry->state == LANE_CLOSING || (crash && entry->state == LANE_OPEN && !entry->reserved && !roll(3)))
			end_session(entry);
	}
	if (!crash || !server.spare.pid)
		return;
	sessions--;
	server.spare = VG_NO_SESSION;
	vg_entries_unreserve(&server); /* as the reaping does */
}

static void take_opened(struct vg_entry *entry, int error)
{
	vg_entry_answer(&server, entry, error, "refused");
	if (error)
		vg_entry_close(entry);
}

/* A session that starts says that it is ready, or that it has taken its lane. */
static void hear_sessions(void)
{
	bool may_refuse = !tape_has_ended();

	if (!server.spare.pid && vg_now_ms() >= server.spare_ms)
		vg_session_spawn(&server, &server.spare);
	else if (server.spare.pid)
		server.spare.ready = true;
	for (uint32_t i = 1; i < VG_LANE_TABLE; i++)
		if (server.entry[i].state == LANE_OPEN && !server.entry[i].reserved)
			take_opened(&server.entry[i], may_refuse && roll(20) == 1 ? -EPERM : 0);
}

void server_turn(void)
{
	window_turn(true);
	vg_layout_publish(&server.layout, server.header);
	vg_store32(&server.header->epoch, server.epoch);
	vg_store32(&server.header->number, server.number);
	vg_control_poll(&server);
	vg_control_publish(&server);
	vg_store32(&server.header->state, VG_STATE_READY);
	hear_sessions();
	window_turn(false);
	check();
}
