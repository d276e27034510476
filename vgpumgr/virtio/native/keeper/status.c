/* SPDX-License-Identifier: Apache-2.0 */
/* The keeper's status as one line of JSON; numbers of the worker's page are shown, never used. */
#include <inttypes.h>

#include "keeper.h"

static const char *const state_name[] = {
	[WORKER_STARTING] = "starting", [WORKER_READY] = "ready",   [WORKER_STOPPING] = "stopping",
	[WORKER_WAITING] = "waiting",   [WORKER_FAILED] = "failed", [WORKER_NONE] = "none",
};

/* Text that an enemy may have written: printable ASCII comes out, quoted. */
void keeper_json_text(FILE *out, const char *text, size_t size)
{
	char clean[256];

	vg_clean_text(clean, sizeof(clean), text, size);
	fputc('"', out);
	for (const char *c = clean; *c; c++) {
		if (*c == '"' || *c == '\\')
			fputc('\\', out);
		fputc(*c, out);
	}
	fputc('"', out);
}

static void text(FILE *out, const char *key, const char *value, size_t size)
{
	fprintf(out, ", \"%s\": ", key);
	keeper_json_text(out, value, size);
}

static void number(FILE *out, const char *key, uint64_t value)
{
	fprintf(out, ", \"%s\": %" PRIu64, key, value);
}

static void write_worker(const struct keeper *keeper, FILE *out)
{
	const struct worker *worker = &keeper->worker;

	fprintf(out, ", \"worker\": {\"state\": \"%s\"", state_name[worker->state]);
	number(out, "pid", (uint64_t)worker->pid);
	number(out, "starts", worker->starts);
	number(out, "failures", worker->failures);
	text(out, "message", worker->message, sizeof(worker->message));
	text(out, "last_exit", worker->last_exit, sizeof(worker->last_exit));
	if (keeper->stats)
		text(out, "api_version", keeper->stats->api_version, sizeof(keeper->stats->api_version));
	else
		text(out, "api_version", "", 1);
	fputc('}', out);
}

static void write_hello(const struct vg_guest_stats *guest, const char *name, FILE *out)
{
	fprintf(out, "\"%s\": ", name);
	if (!vg_load32(&guest->present)) {
		fputs("null", out);
		return;
	}
	fprintf(out, "{\"wire_version\": %u, \"matches\": %s", vg_load32(&guest->version),
		vg_load32(&guest->version) == VG_WIRE_VERSION ? "true" : "false");
	text(out, "agent_version", guest->agent, sizeof(guest->agent));
	text(out, "kernel", guest->kernel, sizeof(guest->kernel));
	fputc('}', out);
}

static void write_guest(const struct vg_stats *stats, FILE *out)
{
	bool ring = vg_load32(&stats->guest[0].present), serial = vg_load32(&stats->guest[1].present);

	fprintf(out, ", \"guest\": {\"hello\": \"%s\", ", ring ? "ring" : serial ? "serial" : "none");
	write_hello(&stats->guest[0], "ring", out);
	fputs(", ", out);
	write_hello(&stats->guest[1], "serial", out);
	fprintf(out, ", \"serial_connected\": %s", vg_load32(&stats->serial_connected) ? "true" : "false");
	number(out, "mismatches", vg_load32(&stats->mismatches));
	text(out, "mismatch", stats->mismatch, sizeof(stats->mismatch));
	fputc('}', out);
}

struct sums {
	uint64_t calls, posts, bytes_in, bytes_out, memory;
};

static void write_lane(const struct keeper *keeper, const struct vg_stats *stats, unsigned index, bool first,
		       struct sums *sums, FILE *out)
{
	const struct vg_lane_stats *lane = &stats->lane[index];
	uint64_t memory = vg_load64(&lane->memory_bytes);

	fprintf(out, "%s{\"lane\": %u", first ? "" : ", ", index);
	number(out, "pid", vg_load32(&lane->pid));
	text(out, "name", lane->name, sizeof(lane->name));
	text(out, "transport", vg_load32(&lane->ring) ? "ring" : "serial", 7);
	number(out, "since_s", vg_load64(&lane->since_s));
	number(out, "calls", vg_load64(&lane->calls));
	number(out, "posts", vg_load64(&lane->posts));
	number(out, "bytes_in", vg_load64(&lane->bytes_in));
	number(out, "bytes_out", vg_load64(&lane->bytes_out));
	number(out, "memory_bytes", memory);
	number(out, "session_pid", keeper_find_session(keeper, vg_load32(&stats->words[index].pid)));
	fputc('}', out);
	sums->calls += vg_load64(&lane->calls);
	sums->posts += vg_load64(&lane->posts);
	sums->bytes_in += vg_load64(&lane->bytes_in);
	sums->bytes_out += vg_load64(&lane->bytes_out);
	sums->memory += memory;
}

static void write_stuck(const struct keeper *keeper, unsigned lane, uint32_t inner, uint64_t since_s, bool *first,
			FILE *out)
{
	uint32_t pid = keeper_find_session(keeper, inner);

	if (!inner)
		return;
	fprintf(out, "%s{\"lane\": %u, \"pid\": %u", *first ? "" : ", ", lane, pid);
	number(out, "since_s", since_s);
	fputc('}', out);
	*first = false;
}

static void write_ended(const struct vg_health_stats *health, FILE *out)
{
	bool first = true;

	fputs(", \"ended\": [", out);
	for (unsigned i = 0; i < VG_ENDED_MAX; i++) {
		const struct vg_ended_stats *row = &health->ended[i];

		if (!vg_load32(&row->lane))
			continue;
		fprintf(out, "%s{\"lane\": %u", first ? "" : ", ", vg_load32(&row->lane));
		number(out, "pid", vg_load32(&row->pid));
		text(out, "name", row->name, sizeof(row->name));
		number(out, "status", vg_load32(&row->status));
		number(out, "at_s", vg_load64(&row->at_s));
		fputc('}', out);
		first = false;
	}
	fputc(']', out);
}

static void write_slow(const struct keeper *keeper, const struct vg_stats *stats, FILE *out)
{
	bool first = true;

	fputs(", \"slow\": [", out);
	for (unsigned i = 0; i < VG_SLOW_MAX; i++) {
		const struct vg_slow_stats *row = &stats->health.slow[i];
		uint32_t lane = vg_load32(&row->lane);

		if (!lane || lane >= VG_LANE_TABLE)
			continue;
		fprintf(out, "%s{\"lane\": %u", first ? "" : ", ", lane);
		number(out, "pid", keeper_find_session(keeper, vg_load32(&stats->words[lane].pid)));
		text(out, "call", row->name, sizeof(row->name));
		number(out, "since_s", vg_load64(&row->since_s));
		fputc('}', out);
		first = false;
	}
	fputc(']', out);
}

static void write_refused(const struct vg_health_stats *health, FILE *out)
{
	bool first = true;

	fputs(", \"refused\": {\"calls\": [", out);
	for (unsigned i = 0; i < VG_REFUSED_MAX; i++) {
		const struct vg_refused_stats *row = &health->refused[i];

		if (!vg_load64(&row->count))
			continue;
		fputs(first ? "{\"name\": " : ", {\"name\": ", out);
		keeper_json_text(out, row->name, sizeof(row->name));
		number(out, "count", vg_load64(&row->count));
		fputc('}', out);
		first = false;
	}
	fputc(']', out);
	number(out, "more", vg_load64(&health->refused_more));
	fputc('}', out);
}

/* Processes that were killed and do not end: those that still have their lane, and those whose lane others have. */
static void write_sessions(const struct keeper *keeper, const struct vg_stats *stats, FILE *out)
{
	bool first = true;

	fprintf(out, ", \"sessions\": {\"lost\": %" PRIu64, vg_load64(&stats->sessions_lost));
	text(out, "last", stats->session_lost, sizeof(stats->session_lost));
	fputs(", \"stuck\": [", out);
	for (unsigned i = 1; i < VG_LANE_TABLE; i++)
		if (vg_load32(&stats->words[i].stuck))
			write_stuck(keeper, i, vg_load32(&stats->words[i].pid),
				    vg_load64(&stats->health.stuck_s[i]), &first, out);
	for (unsigned i = 0; i < VG_STUCK_MAX; i++)
		write_stuck(keeper, vg_load32(&stats->stuck[i].lane), vg_load32(&stats->stuck[i].pid),
			    vg_load64(&stats->health.aside_s[i]), &first, out);
	fputc(']', out);
	number(out, "faults", vg_load64(&stats->health.faults));
	number(out, "overdue", vg_load64(&stats->health.overdue));
	write_ended(&stats->health, out);
	write_slow(keeper, stats, out);
	fputc('}', out);
	write_refused(&stats->health, out);
}

static void write_lanes(const struct keeper *keeper, const struct vg_stats *stats, FILE *out)
{
	struct sums sums = {
		.calls = vg_load64(&stats->calls),
		.posts = vg_load64(&stats->posts),
		.bytes_in = vg_load64(&stats->bytes_in),
		.bytes_out = vg_load64(&stats->bytes_out),
	};
	bool first = true;

	fputs(", \"lanes\": [", out);
	for (unsigned i = 1; i < VG_LANE_TABLE; i++) {
		if (!vg_load32(&stats->lane[i].used))
			continue;
		write_lane(keeper, stats, i, first, &sums, out);
		first = false;
	}
	fprintf(out, "], \"totals\": {\"lanes_opened\": %" PRIu64, vg_load64(&stats->lanes_opened));
	number(out, "calls", sums.calls);
	number(out, "posts", sums.posts);
	number(out, "bytes_in", sums.bytes_in);
	number(out, "bytes_out", sums.bytes_out);
	number(out, "memory_bytes", sums.memory);
	number(out, "doorbells", vg_load64(&stats->doorbells));
	fputs("}, \"violations\": {\"count\": ", out);
	fprintf(out, "%" PRIu64, vg_load64(&stats->violations));
	text(out, "last", stats->violation, sizeof(stats->violation));
	fputc('}', out);
}

/* In the order of enum vg_limit: the limit (null: none), what is used of it, charges refused, nanoseconds waited. */
static void write_limits(const struct vg_stats *stats, FILE *out)
{
	uint32_t known = vg_load32(&stats->limits);

	fputs(", \"limits\": [", out);
	for (unsigned i = 0; i < VG_LIMITS && i < known; i++) {
		const struct vg_limit_stats *limit = &stats->limit[i];
		uint64_t most = vg_load64(&limit->most);

		fputs(i ? ", [" : "[", out);
		if (most == UINT64_MAX)
			fputs("null", out);
		else
			fprintf(out, "%" PRIu64, most);
		fprintf(out, ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 "]", vg_load64(&limit->used),
			vg_load64(&limit->refused), vg_load64(&limit->waited_ns));
	}
	fprintf(out, "], \"opened_bytes\": %" PRIu64, vg_load64(&stats->opened_bytes));
}

static void write_change(const struct limit_change *limit, FILE *out)
{
	fprintf(out, ", \"change\": {\"number\": %u, \"answered\": %u, \"error\": %d}", limit->number, limit->answered,
		limit->error);
}

static void write_share(const struct keeper *keeper, FILE *out)
{
	static const struct vg_share_account nothing;
	const struct vg_share_account *account = keeper->share.account ? keeper->share.account : &nothing;

	fputs(", \"share\": ", out);
	if (!keeper->options.arbiter) {
		fputs("null", out);
		return;
	}
	fprintf(out, "{\"compute\": %u.%04u, \"policy\": \"%s\"", keeper->share.compute / VG_SHARE_PERCENT,
		keeper->share.compute % VG_SHARE_PERCENT, keeper->options.policy ? keeper->options.policy : "burst");
	fprintf(out, ", \"priority\": \"%s\"", keeper_name_priority(keeper->share.priority));
	number(out, "used_ns", vg_load64(&account->used_ns));
	number(out, "throttled_ns", vg_load64(&account->throttled_ns));
	number(out, "turns", vg_load64(&account->turns));
	number(out, "overdue_ns", vg_load64(&account->overdue_ns));
	fprintf(out, ", \"kept\": %s}", keeper->share.socket < 0 ? "false" : "true");
}

void keeper_write_status(const struct keeper *keeper, FILE *out)
{
	static const struct vg_stats nothing;
	const struct vg_stats *stats = keeper->stats ? keeper->stats : &nothing;

	fprintf(out, "{\"ok\": true, \"keeper_pid\": %d", getpid());
	number(out, "since_s", keeper->started_s);
	number(out, "epoch", keeper->epoch);
	number(out, "memory_size", keeper->layout.size);
	number(out, "next_memory_size", keeper->next_size);
	number(out, "ring_lanes", keeper->layout.lane_count);
	text(out, "error", keeper->error, sizeof(keeper->error));
	fprintf(out, ", \"qemu\": {\"connected\": %s", keeper->qemu >= 0 ? "true" : "false");
	number(out, "pid", (uint64_t)keeper->qemu_pid);
	number(out, "uid", keeper->qemu_uid);
	number(out, "connects", keeper->qemu_connects);
	fputc('}', out);
	write_worker(keeper, out);
	write_guest(stats, out);
	write_lanes(keeper, stats, out);
	write_sessions(keeper, stats, out);
	write_limits(stats, out);
	write_change(&keeper->limit, out);
	write_share(keeper, out);
	fputs("}\n", out);
}
