/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which processes have joined is known by locks of the file, one byte for each rank: the kernel gives them back when a process
 * ends, however it ends, and no child of fork has them. All closing of the file gives them back, so that a process has it open once.
 */
#include "segment.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { JOINING = 1 << 20 }; /* the byte that is locked while the file is made or joined */

struct head {
	char magic[8];
	uint32_t version, ranks;
	uint64_t bytes;
	uint8_t secret[64];
	_Atomic uint32_t joined;
};

static const char MAGIC[8] = "vgpunccl";
enum { VERSION = 1 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct segment *joined;

static size_t round_up(size_t bytes)
{
	return (bytes + 4095) & ~(size_t)4095;
}

/* By the number of ranks alone, so that all have the same. 14 MiB for two ranks, less than 50 for up to 32, less than 95 for 64. */
static struct sg_layout plan(uint32_t ranks)
{
	struct sg_layout at = { .ranks = ranks, .piece = (size_t)1 << 20, .letter = (size_t)256 << 10 };
	size_t pairs = (size_t)ranks * ranks;

	while (at.piece * (ranks + 1) * SG_SLOTS > (size_t)32 << 20)
		at.piece /= 2;
	while (at.letter * pairs * SG_LETTERS > (size_t)16 << 20 && at.letter > 8192)
		at.letter /= 2;
	at.states = round_up(sizeof(struct head));
	at.forms = at.states + round_up(ranks * sizeof(struct sg_rank));
	at.mails = at.forms + round_up(ranks * SG_SLOTS * sizeof(struct sg_form));
	at.slots = at.mails + round_up(pairs * sizeof(struct sg_mail));
	at.results = at.slots + ranks * SG_SLOTS * at.piece;
	at.letters = at.results + SG_SLOTS * at.piece;
	at.bytes = at.letters + pairs * SG_LETTERS * at.letter;
	return at;
}

struct sg_rank *sg_state(const struct segment *s, int rank)
{
	return (struct sg_rank *)(s->map + s->at.states) + rank;
}

struct sg_form *sg_form(const struct segment *s, int rank, uint64_t round)
{
	return (struct sg_form *)(s->map + s->at.forms) + rank * SG_SLOTS + round % SG_SLOTS;
}

uint8_t *sg_slot(const struct segment *s, int rank, uint64_t round)
{
	return s->map + s->at.slots + (rank * SG_SLOTS + round % SG_SLOTS) * s->at.piece;
}

uint8_t *sg_result(const struct segment *s, uint64_t round)
{
	return s->map + s->at.results + round % SG_SLOTS * s->at.piece;
}

static size_t pair(const struct segment *s, int from, int to)
{
	return (size_t)from * s->at.ranks + to;
}

struct sg_mail *sg_mail(const struct segment *s, int from, int to)
{
	return (struct sg_mail *)(s->map + s->at.mails) + pair(s, from, to);
}

uint8_t *sg_letter(const struct segment *s, int from, int to, uint64_t number)
{
	return s->map + s->at.letters + (pair(s, from, to) * SG_LETTERS + number % SG_LETTERS) * s->at.letter;
}

static bool lock_byte(int file, off_t byte, int type, int command)
{
	struct flock range = { .l_type = (short)type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1 };
	int r;

	do
		r = fcntl(file, command, &range);
	while (r < 0 && errno == EINTR);
	return r == 0;
}

static bool is_locked(int file, off_t byte)
{
	struct flock range = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1 };

	return fcntl(file, F_GETLK, &range) == 0 && range.l_type != F_UNLCK;
}

static struct head *head_of(const struct segment *s)
{
	return (struct head *)s->map;
}

int sg_joined(const struct segment *s)
{
	uint32_t count = atomic_load(&head_of(s)->joined);

	return count < s->at.ranks ? (int)count : (int)s->at.ranks;
}

enum sg_life sg_life(const struct segment *s, int rank)
{
	switch (atomic_load(&sg_state(s, rank)->state)) {
	case SG_ABSENT:
		return SG_ALIVE;
	case SG_JOINED:
		return s->local[rank] || is_locked(s->file, rank) ? SG_ALIVE : SG_DEAD;
	case SG_LEFT:
		return SG_GONE;
	default:
		return SG_BROKEN;
	}
}

static ncclResult_t refuse(char text[SG_TEXT], ncclResult_t result, const char *why)
{
	snprintf(text, SG_TEXT, "%s: %s", why, strerror(errno));
	return result;
}

/* A file of this user's that others can neither read nor write. */
static bool is_private(int file)
{
	struct stat about;

	return fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_uid == geteuid() &&
	       !(about.st_mode & 077);
}

/* Opened and locked while it has its name; the last to join takes the name. */
static int open_named(const char *path)
{
	struct stat about;
	int file;

	for (;;) {
		file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (file < 0)
			return -1;
		if (!is_private(file)) {
			errno = EPERM;
			break;
		}
		if (!lock_byte(file, JOINING, F_WRLCK, F_SETLKW))
			break;
		if (fstat(file, &about) == 0 && about.st_nlink)
			return file;
		close(file);
	}
	close(file);
	return -1;
}

static ncclResult_t fill(struct segment *s, char text[SG_TEXT])
{
	struct head head = { .version = VERSION, .ranks = s->at.ranks, .bytes = s->at.bytes };

	/* all of it now: a file system that is full later would end the process */
	errno = posix_fallocate(s->file, 0, (off_t)s->at.bytes);
	if (errno) {
		refuse(text, ncclSystemError, "/dev/shm has no memory for the communicator");
		unlink(s->path);
		return ncclSystemError;
	}
	memcpy(head.magic, MAGIC, sizeof(MAGIC));
	memcpy(head.secret, s->id.secret, sizeof(head.secret));
	if (pwrite(s->file, &head, sizeof(head), 0) != (ssize_t)sizeof(head))
		return refuse(text, ncclSystemError, "/dev/shm cannot be written");
	return ncclSuccess;
}

static ncclResult_t check_head(const struct segment *s, char text[SG_TEXT])
{
	struct head head;
	struct stat about;

	if (fstat(s->file, &about) < 0 || pread(s->file, &head, sizeof(head), 0) != (ssize_t)sizeof(head))
		return refuse(text, ncclSystemError, "the communicator's memory cannot be read");
	if (memcmp(head.magic, MAGIC, sizeof(MAGIC)) || head.version != VERSION ||
	    memcmp(head.secret, s->id.secret, sizeof(head.secret))) {
		snprintf(text, SG_TEXT, "the unique id is not that of the communicator's memory");
		return ncclInvalidArgument;
	}
	if (head.ranks != s->at.ranks) {
		snprintf(text, SG_TEXT, "this rank says that there are %u ranks, others say %u", s->at.ranks, head.ranks);
		return ncclInvalidArgument;
	}
	if (head.bytes != s->at.bytes || (uint64_t)about.st_size != s->at.bytes) {
		snprintf(text, SG_TEXT, "the communicator's memory has another size");
		return ncclInvalidArgument;
	}
	return ncclSuccess;
}

static ncclResult_t open_segment(struct segment *s, char text[SG_TEXT])
{
	ncclResult_t r = ncclSuccess;
	struct stat about;

	s->file = open_named(s->path);
	if (s->file < 0)
		return refuse(text, ncclSystemError, "the communicator's memory in /dev/shm cannot be opened");
	if (fstat(s->file, &about) < 0)
		r = refuse(text, ncclSystemError, "the communicator's memory cannot be read");
	if (r == ncclSuccess && !about.st_size)
		r = fill(s, text);
	if (r == ncclSuccess)
		r = check_head(s, text);
	if (r == ncclSuccess) {
		s->map = mmap(NULL, s->at.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->file, 0);
		if (s->map != MAP_FAILED)
			return ncclSuccess;
		r = refuse(text, ncclSystemError, "the communicator's memory cannot be mapped");
	}
	close(s->file);
	return r;
}

static void name(struct segment *s)
{
	int n = snprintf(s->path, sizeof(s->path), "/dev/shm/vgpumgr-nccl-");

	for (int i = 0; i < 16; i++)
		n += snprintf(s->path + n, sizeof(s->path) - n, "%02x", s->id.name[i]);
}

/* Under the lock. */
static ncclResult_t find(const struct sg_id *id, int ranks, struct segment **found, char text[SG_TEXT])
{
	struct segment *s;
	ncclResult_t r;

	for (s = joined; s && memcmp(&s->id, id, sizeof(*id)); s = s->next)
		;
	*found = s;
	if (s) {
		if (!lock_byte(s->file, JOINING, F_WRLCK, F_SETLKW))
			return refuse(text, ncclSystemError, "the communicator's memory cannot be locked");
		if ((int)s->at.ranks == ranks)
			return ncclSuccess;
		snprintf(text, SG_TEXT, "this rank says that there are %d ranks, others say %u", ranks, s->at.ranks);
		lock_byte(s->file, JOINING, F_UNLCK, F_SETLK);
		return ncclInvalidArgument;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return refuse(text, ncclSystemError, "no memory");
	s->id = *id;
	s->at = plan((uint32_t)ranks);
	name(s);
	r = open_segment(s, text);
	if (r != ncclSuccess) {
		free(s);
		return r;
	}
	s->next = joined;
	joined = s;
	*found = s;
	return ncclSuccess;
}

/* Under the lock. */
static void drop(struct segment *s)
{
	struct segment **at = &joined;

	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	munmap(s->map, s->at.bytes);
	close(s->file);
	free(s);
}

/* Under both locks. */
static ncclResult_t take_rank(struct segment *s, int rank, char text[SG_TEXT])
{
	struct sg_rank *state = sg_state(s, rank);

	if (atomic_load(&state->state) != SG_ABSENT || s->local[rank] || !lock_byte(s->file, rank, F_WRLCK, F_SETLK)) {
		snprintf(text, SG_TEXT, "rank %d has joined already", rank);
		return ncclInvalidUsage;
	}
	s->local[rank] = true;
	s->uses++;
	atomic_store(&state->state, SG_JOINED);
	if (atomic_fetch_add(&head_of(s)->joined, 1) + 1 == s->at.ranks)
		unlink(s->path);
	return ncclSuccess;
}

ncclResult_t sg_join(const struct sg_id *id, int ranks, int rank, struct segment **segment, char text[SG_TEXT])
{
	ncclResult_t r;

	pthread_mutex_lock(&lock);
	r = find(id, ranks, segment, text);
	if (r == ncclSuccess) {
		r = take_rank(*segment, rank, text);
		lock_byte((*segment)->file, JOINING, F_UNLCK, F_SETLK);
		if (r != ncclSuccess && !(*segment)->uses)
			drop(*segment);
	}
	pthread_mutex_unlock(&lock);
	return r;
}

void sg_leave(struct segment *s, int rank, enum sg_state how)
{
	pthread_mutex_lock(&lock);
	atomic_store(&sg_state(s, rank)->state, how);
	/* one that never becomes whole keeps its name for a while, so that ranks that come late are refused by its states */
	if (sg_joined(s) < (int)s->at.ranks)
		fallocate(s->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)s->at.slots,
			  (off_t)(s->at.bytes - s->at.slots));
	s->local[rank] = false;
	lock_byte(s->file, rank, F_UNLCK, F_SETLK);
	if (!--s->uses)
		drop(s);
	pthread_mutex_unlock(&lock);
}

void sg_forget(void)
{
	lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	joined = NULL; /* the mappings stay: a copy of the parent's thread may stand in one */
}
