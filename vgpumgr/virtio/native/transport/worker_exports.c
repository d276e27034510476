/* SPDX-License-Identifier: Apache-2.0 */
/* What sessions share, at the server: the table of tokens. */
#include "worker_exports.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "util.h"
#include "worker_limits.h"

enum { AT_ONCE = 16 };       /* requests of one session, then it is another's turn */

/* Its place in the table is free where id is 0. */
struct vg_export {
	uint64_t id;
	uint32_t lane;           /* whose it is; 0: withdrawn, and charged to the VM until no session has it open */
	uint32_t kind, user;
	int file;                /* where the kind has one, and it can be opened */
	uint64_t bytes, of;      /* of: the pool's id, of its memory */
	uint8_t token[VG_EXPORT_BYTES], handle[VG_EXPORT_BYTES];
	uint32_t opens;          /* by all lanes */
	uint16_t opened[VG_LANE_TABLE];
};

struct vg_exports {
	uint64_t last_id;
	uint64_t opened_bytes;   /* of memory, by each lane that has it open */
	unsigned end;            /* places at and above have never been used */
	struct vg_export at[VG_EXPORTS];
};

static void drop(struct vg_export *e)
{
	if (!e->lane)
		vg_limits_release(e->bytes);
	explicit_bzero(e, sizeof(*e));
}

/* Whoever has opened it has one of their own. */
static void close_file(struct vg_export *e)
{
	if (vg_export_is_file(e->kind))
		close(e->file);
}

/* What others have open is charged to the VM from now on; its own session gives its charge back after this. */
static void withdraw(struct vg_export *e)
{
	if (!e->lane)
		return;
	close_file(e);
	if (!e->opens) {
		explicit_bzero(e, sizeof(*e));
		return;
	}
	vg_limits_keep(e->bytes);
	e->lane = 0;
}

static void close_one(struct vg_exports *table, struct vg_export *e, uint32_t lane, unsigned times)
{
	e->opened[lane] = (uint16_t)(e->opened[lane] - times);
	e->opens -= times;
	if (!e->opened[lane])
		table->opened_bytes -= e->bytes;
	if (!e->opens && !e->lane)
		drop(e);
}

static struct vg_export *find_id(struct vg_exports *table, uint64_t id)
{
	for (unsigned i = 0; id && i < table->end; i++)
		if (table->at[i].id == id)
			return &table->at[i];
	return NULL;
}

/* Without a hint in the time it takes how much of a guess is right. */
static struct vg_export *find_token(struct vg_exports *table, const uint8_t *token)
{
	struct vg_export *found = NULL;

	for (unsigned i = 0; i < table->end; i++) {
		struct vg_export *e = &table->at[i];
		uint8_t differs = 0;

		for (unsigned k = 0; k < VG_EXPORT_BYTES; k++)
			differs |= e->token[k] ^ token[k];
		if (!differs && e->id)
			found = e;
	}
	return found;
}

/* One process, or one user with several, leaves some to others, also where it has withdrawn what it keeps open. */
static bool counts_for(const struct vg_export *e, const struct vg_entry *entry)
{
	return e->lane == entry->number || (entry->user != VG_USER_ANY && e->user == entry->user);
}

static struct vg_export *take_place(struct vg_exports *table, const struct vg_entry *entry)
{
	struct vg_export *place = NULL;
	unsigned own = 0;

	for (unsigned i = 0; i < table->end; i++) {
		if (!table->at[i].id && !place)
			place = &table->at[i];
		own += table->at[i].id && counts_for(&table->at[i], entry);
	}
	if (own >= VG_EXPORTS_OF_ONE)
		return NULL;
	if (!place && table->end < VG_EXPORTS)
		place = &table->at[table->end++];
	return place;
}

static bool is_own_pool(struct vg_exports *table, const struct vg_entry *entry, uint64_t id)
{
	const struct vg_export *e = find_id(table, id);

	return e && e->kind == VG_EXPORT_POOL && e->lane == entry->number;
}

/* The file is the table's from now on, if it is taken. */
static int make(struct vg_exports *table, const struct vg_entry *entry, const struct vg_export_request *in, int *file,
		struct vg_export_answer *out)
{
	struct vg_export *e;

	if (in->kind < VG_EXPORT_MEMORY || in->kind >= VG_EXPORT_KINDS)
		return -EPROTO;
	if (in->kind == VG_EXPORT_POOLED && !is_own_pool(table, entry, in->id))
		return -EPROTO;
	if (!entry->user)
		return -EPERM;
	if (vg_export_is_file(in->kind) && *file < 0) /* there are too many descriptors */
		return -ENOSPC;
	e = take_place(table, entry);
	if (!e)
		return -ENOSPC;
	if (getrandom(e->token, sizeof(e->token), 0) != sizeof(e->token))
		return -EIO;
	e->id = ++table->last_id;
	e->lane = entry->number;
	e->kind = in->kind;
	e->user = entry->user;
	e->bytes = in->kind == VG_EXPORT_EVENT || in->kind == VG_EXPORT_POOL ? 0 : in->bytes;
	e->of = in->kind == VG_EXPORT_POOLED ? in->id : 0;
	if (vg_export_is_file(in->kind)) {
		e->file = *file;
		*file = -1;
	}
	memcpy(e->handle, in->handle, sizeof(e->handle));
	memcpy(out->token, e->token, sizeof(out->token));
	out->id = e->id;
	return 0;
}

/* Of another user's token no more is said than of one that never was. */
static int open_token(struct vg_exports *table, const struct vg_entry *entry, const struct vg_export_request *in,
		      int *lent, struct vg_export_answer *out)
{
	struct vg_export *e = find_token(table, in->token);

	if (!e || !e->lane || e->kind != in->kind || e->user != entry->user || (e->of && e->of != in->id))
		return -ENOENT;
	if (e->lane == entry->number)
		return -EDEADLK;
	if (e->opened[entry->number] >= VG_EXPORT_OPENS)
		return -ENOSPC;
	if (!e->opened[entry->number]++)
		table->opened_bytes += e->bytes;
	e->opens++;
	memcpy(out->handle, e->handle, sizeof(out->handle));
	out->bytes = e->bytes;
	out->id = e->id;
	if (vg_export_is_file(e->kind))
		*lent = e->file;
	return 0;
}

/* `file` came along, and is taken or not; `lent` goes with the answer. */
static int answer_one(struct vg_exports *table, const struct vg_entry *entry, const struct vg_export_request *in, int *file,
		      int *lent, struct vg_export_answer *out)
{
	struct vg_export *e;

	switch (in->what) {
	case VG_EXPORT_MAKE:
		return make(table, entry, in, file, out);
	case VG_EXPORT_OPEN:
		return open_token(table, entry, in, lent, out);
	case VG_EXPORT_WITHDRAW:
		e = find_id(table, in->id);
		if (!e || e->lane != entry->number)
			return -EPROTO;
		withdraw(e);
		return 0;
	case VG_EXPORT_CLOSE:
		e = find_id(table, in->id);
		if (!e || !e->opened[entry->number])
			return -EPROTO;
		close_one(table, e, entry->number, 1);
		return 0;
	default:
		return -EPROTO;
	}
}

static int serve_one(struct vg_server *server, struct vg_entry *entry, const struct vg_export_request *in, ssize_t length,
		     int *file)
{
	struct vg_export_answer out = { 0 };
	int lent = -1;

	if (length != (ssize_t)sizeof(*in) || (*file >= 0 && !(in->what == VG_EXPORT_MAKE && vg_export_is_file(in->kind))))
		return -EPROTO;
	if (!server->exports)
		server->exports = calloc(1, sizeof(*server->exports));
	out.error = server->exports ? answer_one(server->exports, entry, in, file, &lent, &out) : -ENOSPC;
	if (out.error == -EPROTO)
		return -EPROTO;
	/* one that does not read what it has asked for fills its own socket only */
	return vg_exports_send(entry->session.exports, &out, sizeof(out), lent, MSG_DONTWAIT) == (ssize_t)sizeof(out) ? 0 : -EPROTO;
}

void vg_exports_read(struct vg_server *server, struct vg_entry *entry)
{
	struct vg_session *session = &entry->session;
	struct vg_export_request request;

	for (unsigned i = 0; i < AT_ONCE; i++) {
		int file VG_FD = -1;
		ssize_t n = vg_exports_receive(session->exports, &request, sizeof(request), &file, MSG_DONTWAIT | MSG_TRUNC);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n > 0 && !serve_one(server, entry, &request, n, &file))
			continue;
		if (n > 0) {
			vg_log(server, "worker: a session asks to share what it must not, and is killed\n");
			if (session->pid)
				kill(session->pid, SIGKILL);
		}
		return vg_close_fd(&session->exports);
	}
}

void vg_exports_end(struct vg_server *server, uint32_t lane)
{
	struct vg_exports *table = server->exports;

	for (unsigned i = 0; table && i < table->end; i++) {
		struct vg_export *e = &table->at[i];

		if (!e->id)
			continue;
		if (e->lane == lane)
			withdraw(e);
		if (e->opened[lane])
			close_one(table, e, lane, e->opened[lane]);
	}
}

uint64_t vg_exports_opened(const struct vg_server *server)
{
	return server->exports ? server->exports->opened_bytes : 0;
}

void vg_exports_strand(struct vg_server *server, uint32_t lane, uint32_t row)
{
	const struct vg_exports *table = server->exports;

	for (unsigned i = 0; table && i < table->end; i++)
		if (table->at[i].id && table->at[i].opened[lane])
			vg_limits_add(row, table->at[i].bytes);
	vg_exports_end(server, lane);
}
