/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions' processes are heard, killed when their lane has closed, reaped, and named if they do not end. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "util.h"
#include "worker.h"
#include "worker_exports.h"
#include "worker_limits.h"
#include "worker_share.h"

enum {
	STUCK_MS = 2000,         /* from SIGKILL to the verdict that a process is stuck in the driver */
	BACKOFF_MS = 50,         /* spares that do not start */
	BACKOFF_MAX_MS = 5000,
	AT_ONCE = 16,            /* messages of one session, then it is another's turn */
};

/* ---- what sessions say ---- */

static void take_opened(struct vg_server *server, struct vg_entry *entry, const struct vg_session_opened *opened)
{
	char text[sizeof(opened->text)];
	int32_t error = opened->error;

	vg_clean_text(text, sizeof(text), opened->text, sizeof(opened->text));
	vg_entry_answer(server, entry, error < 0 ? error : 0, *text ? text : "the worker has refused this process");
	if (error)
		vg_entry_close(entry);
}

static int forward(struct vg_server *server, struct vg_entry *entry, const struct vg_message *head, const uint8_t *body)
{
	uint32_t credit;

	if (head->kind == VG_KIND_CREDIT) {
		if (head->length != sizeof(credit))
			return -EPROTO;
		memcpy(&credit, body, sizeof(credit));
		entry->uncredited -= credit < entry->uncredited ? credit : entry->uncredited;
	}
	/* a lane that closes has nobody to hear it */
	if (entry->state == LANE_OPEN)
		vg_stream_send(server, entry->number, head->kind, body, head->length, NULL, 0);
	return 0;
}

static int take_message(struct vg_server *server, struct vg_session *session, struct vg_entry *entry,
			const struct vg_message *head, const uint8_t *body)
{
	struct vg_session_opened opened;
	char text[VG_STATS_TEXT];

	switch (head->kind) {
	case VG_SESSION_READY:
		vg_log_text(server, "a session that started", (const char *)body, head->length);
		session->ready = true;
		server->spare_failures = 0;
		server->failure[0] = '\0';
		return 0;
	case VG_SESSION_FAILED:
		session->failed = true;
		vg_clean_text(server->failure, sizeof(server->failure), (const char *)body, head->length);
		return 0;
	case VG_SESSION_OPENED:
		if (!entry || head->length != sizeof(opened))
			return -EPROTO;
		memcpy(&opened, body, sizeof(opened));
		take_opened(server, entry, &opened);
		return 0;
	case VG_SESSION_VIOLATION:
		vg_clean_text(text, sizeof(text) - 32, (const char *)body, head->length);
		if (!entry)
			return -EPROTO;
		if (!session->violated)
			vg_report_violation(server, entry->number, entry->ring, text);
		session->violated = true;
		vg_entry_close(entry); /* it ends by itself, or is killed */
		return 0;
	case VG_KIND_REPLY:
	case VG_KIND_BULK:
	case VG_KIND_CREDIT:
		return entry && !entry->ring ? forward(server, entry, head, body) : -EPROTO;
	default:
		return -EPROTO;
	}
}

void vg_session_read(struct vg_server *server, struct vg_session *session, struct vg_entry *entry)
{
	static struct {
		struct vg_message head;
		uint8_t body[VG_MESSAGE_MAX];
	} message;

	for (unsigned i = 0; i < AT_ONCE; i++) {
		ssize_t n = recv(session->socket, &message, sizeof(message), MSG_DONTWAIT);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) /* it ends: the reaping says how */
			return vg_close_fd(&session->socket);
		if (n >= (ssize_t)sizeof(message.head) && message.head.length == (size_t)n - sizeof(message.head) &&
		    !take_message(server, session, entry, &message.head, message.body))
			continue;
		vg_log(server, "worker: a session says what it must not, and is killed\n");
		if (session->pid)
			kill(session->pid, SIGKILL);
		return vg_close_fd(&session->socket);
	}
}

/* ---- ending ---- */

static void describe_exit(int status, char *text, size_t size)
{
	if (WIFSIGNALED(status))
		snprintf(text, size, "was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		snprintf(text, size, "exited with status %d", WEXITSTATUS(status));
}

static bool is_fault(int status)
{
	static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP };

	for (unsigned i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		if (WIFSIGNALED(status) && WTERMSIG(status) == faults[i])
			return true;
	return false;
}

static void record_end(struct vg_stats *stats, const struct vg_entry *entry, int status)
{
	struct vg_health_stats *health = &stats->health;
	struct vg_ended_stats *row = &health->ended[vg_load64(&stats->sessions_lost) % VG_ENDED_MAX];

	snprintf(row->name, sizeof(row->name), "%s", entry->name);
	vg_store32(&row->pid, vg_load32(&entry->stats->pid));
	vg_store64(&row->at_s, (uint64_t)time(NULL));
	vg_store32(&row->status, (uint32_t)status);
	vg_store32(&row->lane, entry->number);
	if (is_fault(status))
		vg_store64(&health->faults, vg_load64(&health->faults) + 1);
}

static void report_lost(struct vg_server *server, struct vg_entry *entry, int status)
{
	struct vg_stats *stats = server->stats;
	char how[80], lost[VG_STATS_TEXT];

	describe_exit(status, how, sizeof(how));
	snprintf(lost, sizeof(lost), "lane %u (%s, %s): the session %s", entry->number,
		 entry->ring ? "ring" : "serial", entry->name, how);
	memcpy(stats->session_lost, lost, sizeof(lost));
	record_end(stats, entry, status);
	vg_store64(&stats->sessions_lost, vg_load64(&stats->sessions_lost) + 1);
	vg_log(server, "worker: %s\n", lost);
	snprintf(how, sizeof(how), "the session of lane %u", entry->number);
	vg_last_words(server, &entry->session, how);
}

static void end_lane(struct vg_server *server, struct vg_entry *entry, int status)
{
	struct vg_session *session = &entry->session;

	session->pid = 0;
	vg_exports_end(server, entry->number); /* before its charges go: the VM is to pay for what others use */
	vg_limits_drop(entry->number);
	vg_share_drop(entry->number);
	if (session->socket >= 0)
		vg_session_read(server, session, entry); /* its last words */
	if (status && !session->killed && !session->failed)
		report_lost(server, entry, status);
	vg_session_forget(session);
	vg_store32(&entry->words->pid, 0);
	vg_store32(&entry->words->stuck, 0);
	vg_entry_free(server, entry);
}

static void end_spare(struct vg_server *server, int status)
{
	struct vg_session *spare = &server->spare;
	uint64_t wait = BACKOFF_MS;
	char how[80];

	spare->pid = 0;
	if (spare->socket >= 0)
		vg_session_read(server, spare, NULL);
	server->spare_status = status;
	if (spare->killed) /* by us: this worker ends */
		return vg_session_forget(spare);
	vg_entries_unreserve(server); /* the next process hears why there is none for it */
	describe_exit(status, how, sizeof(how));
	if (!spare->failed)
		snprintf(server->failure, sizeof(server->failure), "a session that was to serve %s", how);
	for (unsigned i = 0; i < server->spare_failures && wait < BACKOFF_MAX_MS; i++)
		wait *= 2;
	server->spare_failures++;
	server->spare_ms = vg_now_ms() + wait;
	vg_log(server, "worker: %s\n", server->failure);
	vg_last_words(server, spare, "a session that was to serve");
	vg_session_forget(spare);
}

static void end_stuck(struct vg_server *server, pid_t pid)
{
	for (unsigned i = 0; i < VG_STUCK_MAX; i++)
		if (server->stuck[i].pid == pid) {
			server->stuck[i].pid = 0;
			vg_limits_drop(VG_LANE_TABLE + i); /* until now the driver had what it held */
			vg_store32(&server->stats->stuck[i].pid, 0);
		}
}

void vg_sessions_reap(struct vg_server *server)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		struct vg_entry *entry = NULL;

		for (unsigned i = 1; i < VG_LANE_TABLE && !entry; i++)
			if (server->entry[i].state != LANE_FREE && server->entry[i].session.pid == pid)
				entry = &server->entry[i];
		if (entry)
			end_lane(server, entry, status);
		else if (server->spare.pid == pid)
			end_spare(server, status);
		else
			end_stuck(server, pid);
	}
}

/*
 * A process that SIGKILL does not end is stuck in the kernel, and the device may still write where it let it: a ring's
 * memory stays its own, so that lane is not given to others. A serial lane shares no memory and is.
 */
static void give_up(struct vg_server *server, struct vg_entry *entry)
{
	struct vg_session *session = &entry->session;
	struct vg_stats *stats = server->stats;
	uint64_t now_s = (uint64_t)time(NULL);

	session->kill_ms = 0;
	vg_log(server, "worker: lane %u: session %d was killed and does not end\n", entry->number, session->pid);
	for (unsigned i = 0; !entry->ring && i < VG_STUCK_MAX; i++) {
		if (server->stuck[i].pid)
			continue;
		server->stuck[i] = *session;
		vg_limits_move(entry->number, VG_LANE_TABLE + i);
		vg_exports_strand(server, entry->number, VG_LANE_TABLE + i);
		vg_share_drop(entry->number);
		vg_store32(&stats->stuck[i].lane, entry->number);
		vg_store64(&stats->health.aside_s[i], now_s);
		vg_store32(&stats->stuck[i].pid, (uint32_t)session->pid);
		server->stuck[i].socket = server->stuck[i].errors = server->stuck[i].exports = -1;
		vg_session_forget(session);
		session->pid = 0;
		vg_entry_free(server, entry);
		return;
	}
	vg_store64(&stats->health.stuck_s[entry->number], now_s);
	vg_store32(&entry->words->stuck, 1);
}

void vg_sessions_tick(struct vg_server *server)
{
	uint64_t now = vg_now_ms();

	for (unsigned i = 1; i < VG_LANE_TABLE; i++) {
		struct vg_session *session = &server->entry[i].session;

		if (server->entry[i].state == LANE_FREE || !session->kill_ms || now < session->kill_ms)
			continue;
		if (session->killed) {
			give_up(server, &server->entry[i]);
			continue;
		}
		kill(session->pid, SIGKILL);
		session->killed = true;
		session->kill_ms = now + STUCK_MS;
	}
}
