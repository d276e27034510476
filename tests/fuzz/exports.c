/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's table of tokens against sessions that ask at random, some of them what no session may: such a one is ended, and
 * nothing of the others changes. A model beside it says what each answer must be, and what the VM is charged. exports COUNT SEED
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "transport/worker_exports.h"
#include "transport/worker_limits.h"

enum { LANES = 4, KNOWN = 512, STRANDED = VG_LANE_TABLE, FILES = 8 };

/* What was made; id 0: nothing any more. */
struct known {
	uint64_t id, bytes, of;
	ino_t file;
	uint32_t lane, kind, user;
	uint8_t token[VG_EXPORT_BYTES];
	unsigned opened[LANES + 1];
};
static struct known known[KNOWN];
static struct vg_server server;
static int far_end[LANES + 1], files[FILES];
static uint64_t seed, ended;

void vg_log(struct vg_server *unused, const char *format, ...)
{
	(void)unused;
	(void)format;
	ended++;
}

#define MUST(what)                                                                                \
	do {                                                                                      \
		if (!(what)) {                                                                    \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);                \
			exit(1);                                                                  \
		}                                                                                 \
	} while (0)

static unsigned roll(unsigned sides)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(seed >> 33) % sides;
}

static void start(uint32_t lane)
{
	int pair[2];

	MUST(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
	server.entry[lane] = (struct vg_entry){ .number = lane, .user = lane == 4 ? VG_USER_UNKNOWN : 1 + lane / 3,
						.session = { .exports = pair[0] } };
	far_end[lane] = pair[1];
}

static unsigned opens(const struct known *k)
{
	unsigned all = 0;

	for (unsigned i = 1; i <= LANES; i++)
		all += k->opened[i];
	return all;
}

static void settle(struct known *k)
{
	if (!k->lane && !opens(k))
		k->id = 0;
}

static void restart(uint32_t lane, uint64_t *stranded)
{
	bool stuck = !roll(8);

	for (struct known *k = known; k < known + KNOWN; k++) {
		if (stuck && k->id && k->opened[lane])
			*stranded += k->bytes;
		k->opened[lane] = 0;
		if (k->lane == lane)
			k->lane = 0;
		settle(k);
	}
	close(far_end[lane]);
	if (server.entry[lane].session.exports >= 0)
		close(server.entry[lane].session.exports);
	if (stuck)
		vg_exports_strand(&server, lane, STRANDED);
	else
		vg_exports_end(&server, lane);
	start(lane);
}

static ino_t inode(int file)
{
	struct stat st;

	return !fstat(file, &st) ? st.st_ino : 0;
}

/* Whether it was answered; else the session has been ended. `file` goes along, and is then what has come; or -1. */
static bool ask_with(uint32_t lane, const void *request, size_t length, int *file, struct vg_export_answer *answer)
{
	MUST(vg_exports_send(far_end[lane], request, length, *file, 0) == (ssize_t)length);
	*file = -1;
	vg_exports_read(&server, &server.entry[lane]);
	return server.entry[lane].session.exports >= 0 &&
	       vg_exports_receive(far_end[lane], answer, sizeof(*answer), file, MSG_DONTWAIT) == sizeof(*answer);
}

static bool ask(uint32_t lane, const void *request, size_t length, struct vg_export_answer *answer)
{
	int file = -1;
	bool answered = ask_with(lane, request, length, &file, answer);

	MUST(file < 0);
	return answered;
}

/* No descriptor of what has ended is kept, nor one that nothing needs. */
static unsigned count_open(void)
{
	unsigned open = 0;

	for (int i = 0; i < 4096; i++)
		open += fcntl(i, F_GETFD) >= 0;
	return open;
}

static const struct known *find_pool(uint32_t lane)
{
	for (const struct known *k = known; k < known + KNOWN; k++)
		if (k->id && k->lane == lane && k->kind == VG_EXPORT_POOL)
			return k;
	return NULL;
}

static void make(uint32_t lane, struct vg_export_request *in, uint64_t *stranded)
{
	const struct known *pool = NULL;
	struct vg_export_answer out;
	struct known *k = known;
	int file = -1;
	ino_t sent = 0;
	bool has, may;

	while (k < known + KNOWN && k->id)
		k++;
	if (k == known + KNOWN)
		return;
	in->kind = roll(VG_EXPORT_KINDS + 1);
	in->bytes = roll(1000);
	memset(in->handle, (int)roll(256), sizeof(in->handle));
	if (in->kind == VG_EXPORT_POOLED)
		pool = roll(32) ? find_pool(lane) : &known[roll(KNOWN)];
	if (in->kind == VG_EXPORT_POOLED && !pool)
		return;
	in->id = pool ? pool->id : 0;
	has = pool && pool->id && pool->lane == lane && pool->kind == VG_EXPORT_POOL;
	if (roll(64) ? vg_export_is_file(in->kind) : roll(2)) {
		file = files[roll(FILES)];
		sent = inode(file);
	}
	may = in->kind >= VG_EXPORT_MEMORY && in->kind < VG_EXPORT_KINDS && (in->kind != VG_EXPORT_POOLED || has) &&
	      (!sent || vg_export_is_file(in->kind));
	if (!ask_with(lane, in, sizeof(*in), &file, &out)) {
		MUST(!may);
		return restart(lane, stranded);
	}
	MUST(may);
	MUST(file < 0 && out.error == (lane == 4 ? -EPERM : vg_export_is_file(in->kind) && !sent ? -ENOSPC : 0));
	if (out.error)
		return;
	MUST(memcmp(out.token, in->handle, sizeof(out.token)));
	*k = (struct known){ .id = out.id, .lane = lane, .kind = in->kind, .user = server.entry[lane].user, .of = in->id, .file = sent };
	if (in->kind != VG_EXPORT_EVENT && in->kind != VG_EXPORT_POOL)
		k->bytes = in->bytes;
	memcpy(k->token, out.token, sizeof(k->token));
}

static void open_one(uint32_t lane, struct vg_export_request *in, struct known *k)
{
	struct vg_export_answer out;
	bool changed = !roll(4);
	int expected = -ENOENT, file = -1;

	in->kind = roll(8) ? k->kind : 1 + roll(VG_EXPORT_KINDS);
	in->id = roll(4) ? k->of : 1 + roll(1000);
	memcpy(in->token, k->token, sizeof(in->token));
	in->token[roll(VG_EXPORT_BYTES)] ^= changed ? 1 + roll(255) : 0;
	if (!changed && k->id && k->lane && k->kind == in->kind && k->user == server.entry[lane].user && (!k->of || in->id == k->of))
		expected = k->lane == lane ? -EDEADLK : 0;
	MUST(ask_with(lane, in, sizeof(*in), &file, &out));
	MUST(out.error == expected);
	MUST(file < 0 ? out.error || !vg_export_is_file(k->kind) : !out.error && inode(file) == k->file);
	if (file >= 0)
		close(file);
	if (out.error)
		return;
	MUST(out.id == k->id && out.bytes == k->bytes);
	k->opened[lane]++;
}

static void end_one(uint32_t lane, struct vg_export_request *in, struct known *k, uint64_t *stranded)
{
	struct vg_export_answer out;
	bool may = in->what == VG_EXPORT_CLOSE ? k->opened[lane] : k->lane == lane;

	if (!k->id)
		return;
	in->id = k->id;
	if (!ask(lane, in, sizeof(*in), &out)) {
		MUST(!may);
		return restart(lane, stranded);
	}
	MUST(may && !out.error);
	if (in->what == VG_EXPORT_CLOSE)
		k->opened[lane]--;
	else
		k->lane = 0;
	settle(k);
}

static void step(uint64_t *stranded)
{
	uint32_t lane = 1 + roll(LANES);
	struct known *k = &known[roll(roll(2) ? 16 : KNOWN)];
	struct vg_export_request in = { .what = 1 + roll(4) };
	struct vg_export_answer out;

	if (!roll(200))
		return restart(lane, stranded);
	if (!roll(300)) { /* of no kind, or of another length */
		in.what = roll(2) ? 9 : in.what;
		MUST(!ask(lane, &in, in.what == 9 ? sizeof(in) : roll(sizeof(in) - 1) + 1, &out) || in.what == 9);
		return restart(lane, stranded);
	}
	if (in.what == VG_EXPORT_MAKE)
		make(lane, &in, stranded);
	else if (in.what == VG_EXPORT_OPEN)
		open_one(lane, &in, k);
	else
		end_one(lane, &in, k, stranded);
}

int main(int argc, char **argv)
{
	unsigned long count = argc > 1 ? strtoul(argv[1], NULL, 10) : 100000;
	uint64_t stranded = 0;
	unsigned base = 0;

	for (unsigned i = 0; i < FILES; i++)
		MUST((files[i] = memfd_create("exports", MFD_CLOEXEC)) >= 0);
	seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	for (uint32_t lane = 1; lane <= LANES; lane++)
		start(lane);
	for (unsigned long i = 0; i < count; i++) {
		uint64_t charged = 0, opened = 0;
		unsigned kept = 0;

		step(&stranded);
		for (const struct known *k = known; k < known + KNOWN; k++) {
			charged += k->id && !k->lane && opens(k) ? k->bytes : 0;
			kept += k->id && k->lane && vg_export_is_file(k->kind);
			for (unsigned n = 1; k->id && n <= LANES; n++)
				opened += k->opened[n] ? k->bytes : 0;
		}
		if (!i)
			base = count_open() - kept;
		MUST(i % 64 || count_open() == base + kept);
		MUST(vg_exports_opened(&server) == opened);
		MUST(vg_limit_used(VG_LIMIT_DEVICE_MEMORY) == charged + stranded);
	}
	printf("%lu requests, %llu sessions ended\n", count, (unsigned long long)ended);
	return 0;
}
