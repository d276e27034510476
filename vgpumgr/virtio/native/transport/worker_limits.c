/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_limits.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
	ROUNDS = 400,              /* tries of a charge that conflicts with others: for most of a second */
	STEP_NS = 20000,           /* each pause is longer by this, */
	STEP_MOST = 100,           /* up to so many steps */
	BURST_NS = 20 * 1000000,   /* what a rate lets through at once after a pause */
	LOOK_NS = 20 * 1000000,    /* a wait looks so often whether its lane has closed */
	STEPS = 200,               /* a rate is paid in so many parts of a second, or in larger ones */
	STEP_CALLS = 256,
	STEP_BYTES = 1 << 20,
	SECOND_NS = 1000000000,
};

static const char *const names[VG_LIMITS] = {
	[VG_LIMIT_DEVICE_MEMORY] = "device-memory",
	[VG_LIMIT_CONTEXTS] = "contexts",
	[VG_LIMIT_STREAMS] = "streams",
	[VG_LIMIT_EVENTS] = "events",
	[VG_LIMIT_MODULES] = "modules",
	[VG_LIMIT_IMAGE_BYTES] = "image-bytes",
	[VG_LIMIT_JIT] = "jit",
	[VG_LIMIT_CALLS] = "calls",
	[VG_LIMIT_BYTES] = "bytes",
};

/* Without a server, as in tests of the calls, the table is this process's own. */
static struct vg_limit_table own_table = { .device_memory = VG_UNLIMITED };
static struct vg_limit_table *table = &own_table;
static struct vg_limit_row *row = &own_table.row[0];
static uint64_t most[VG_LIMITS] = { [0 ... VG_LIMITS - 1] = VG_UNLIMITED };
bool vg_rated;
/* Of this process, by its only reader of calls: not paid yet, and when it is. */
static uint64_t unpaid[VG_LIMITS], step[VG_LIMITS];

/* ---- the option */

static int read_one(const char *text, size_t length, const char **end)
{
	for (unsigned i = 0; i < VG_LIMITS; i++) {
		if (strlen(names[i]) != length || memcmp(names[i], text, length))
			continue;
		errno = 0;
		most[i] = strtoull(text + length + 1, (char **)end, 10);
		return errno || *end == text + length + 1 || most[i] > INT64_MAX ? -EINVAL : 0;
	}
	return -EINVAL;
}

static int read_all(const char *text)
{
	while (*text) {
		const char *colon = strchr(text, ':');

		if (!colon || read_one(text, (size_t)(colon - text), &text) || (*text && *text != ','))
			return -EINVAL;
		text += *text == ',';
	}
	return 0;
}

static uint64_t choose_step(enum vg_limit rate, uint64_t cap)
{
	uint64_t part = most[rate] / STEPS;

	return part < 1 ? 1 : part < cap ? part : cap;
}

int vg_limits_read(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (!strncmp(argv[i], VG_OPTION_LIMITS, strlen(VG_OPTION_LIMITS)) &&
		    read_all(argv[i] + strlen(VG_OPTION_LIMITS)))
			return -EINVAL;
	if (!most[VG_LIMIT_CALLS] || !most[VG_LIMIT_BYTES] || !most[VG_LIMIT_JIT])
		return -EINVAL; /* nothing would ever have its turn */
	atomic_store(&table->device_memory, most[VG_LIMIT_DEVICE_MEMORY]);
	vg_rated = most[VG_LIMIT_CALLS] != VG_UNLIMITED || most[VG_LIMIT_BYTES] != VG_UNLIMITED;
	step[VG_LIMIT_CALLS] = choose_step(VG_LIMIT_CALLS, STEP_CALLS);
	step[VG_LIMIT_BYTES] = choose_step(VG_LIMIT_BYTES, STEP_BYTES);
	return 0;
}

uint64_t vg_limit(enum vg_limit what)
{
	return what == VG_LIMIT_DEVICE_MEMORY ? atomic_load(&table->device_memory) : most[what];
}

/* ---- the table */

static int map(int fd)
{
	void *mapped = mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (mapped == MAP_FAILED)
		return -errno;
	table = mapped;
	return 0;
}

int vg_limits_make(void)
{
	int fd = memfd_create("vgpumgr-limits", MFD_CLOEXEC | MFD_ALLOW_SEALING), error = 0;

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, sizeof(*table)) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		error = -errno;
	if (!error)
		error = map(fd);
	if (!error) {
		atomic_store(&table->device_memory, most[VG_LIMIT_DEVICE_MEMORY]);
		return fd;
	}
	close(fd);
	return error;
}

int vg_limits_map(int fd)
{
	return map(fd);
}

void vg_limits_use(uint32_t lane)
{
	row = &table->row[lane];
}

static uint64_t sum(uint64_t a, uint64_t b)
{
	uint64_t result;

	return __builtin_add_overflow(a, b, &result) ? VG_UNLIMITED : result;
}

uint64_t vg_limit_used(enum vg_limit what)
{
	uint64_t held = 0;

	for (unsigned i = 0; i < VG_LIMIT_ROWS; i++)
		held = sum(held, atomic_load(&table->row[i].held[what]));
	return held;
}

/* ---- charges */

/*
 * A charge says first what it asks for, then reads what all others ask for and hold: of two that meet, at least one sees
 * the other, so that both together never exceed the limit. What is asked is read before what is held: a charge that is
 * granted meanwhile is seen twice rather than not at all.
 */
static bool fits(enum vg_limit what, uint64_t *held)
{
	uint64_t all = 0;

	*held = 0;
	for (unsigned i = 0; i < VG_LIMIT_ROWS; i++) {
		uint64_t asked = atomic_load(&table->row[i].asked[what]);
		uint64_t has = atomic_load(&table->row[i].held[what]);

		*held = sum(*held, has);
		all = sum(all, sum(asked, has));
	}
	return all <= vg_limit(what);
}

/*
 * Another session is being charged at the same time, and the limit may allow one of the two. The pause depends on the
 * row, so that they do not collide again. The other session may be preempted, or killed: then the server clears its row.
 */
static void give_way(unsigned round)
{
	unsigned jitter = (round * 7 + (unsigned)(row - table->row) * 13) % 61;
	struct timespec pause = { .tv_nsec = (round < STEP_MOST ? round : STEP_MOST) * STEP_NS + jitter * 1000 };

	if (round < 4)
		sched_yield();
	else
		nanosleep(&pause, NULL);
}

bool vg_charge_quietly(enum vg_limit what, uint64_t amount)
{
	uint64_t held;

	if (vg_limit(what) == VG_UNLIMITED) {
		atomic_fetch_add(&row->held[what], amount);
		return true;
	}
	for (unsigned round = 0; amount <= vg_limit(what) && round < ROUNDS; round++) {
		bool granted;

		atomic_fetch_add(&row->asked[what], amount);
		granted = fits(what, &held);
		if (granted)
			atomic_fetch_add(&row->held[what], amount);
		atomic_fetch_sub(&row->asked[what], amount);
		if (granted)
			return true;
		if (sum(held, amount) > vg_limit(what))
			return false;
		give_way(round);
	}
	return false;
}

bool vg_charge(enum vg_limit what, uint64_t amount)
{
	if (vg_charge_quietly(what, amount))
		return true;
	atomic_fetch_add(&table->refused[what], 1);
	return false;
}

void vg_refund(enum vg_limit what, uint64_t amount)
{
	atomic_fetch_sub(&row->held[what], amount);
}

/* ---- rates: each call moves the time at which all is paid; a call for which that is too far ahead waits */

static uint64_t read_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

static uint64_t pay(enum vg_limit rate, uint64_t amount, uint64_t now)
{
	uint64_t cost = (uint64_t)((unsigned __int128)amount * SECOND_NS / most[rate]);
	uint64_t due = atomic_load(&table->due_ns[rate]), next;

	do
		next = (due > now ? due : now) + cost;
	while (!atomic_compare_exchange_weak(&table->due_ns[rate], &due, next));
	return next;
}

static void wait_for_turn(enum vg_limit rate, uint64_t amount, bool (*closing)(const void *), const void *argument)
{
	uint64_t begin = read_clock(), now = begin, due = pay(rate, amount, now);

	while (due > now + BURST_NS && !closing(argument)) {
		uint64_t left = due - now - BURST_NS;
		struct timespec pause = { .tv_nsec = (long)(left < LOOK_NS ? left : LOOK_NS) };

		nanosleep(&pause, NULL);
		now = read_clock();
	}
	if (now != begin)
		atomic_fetch_add(&table->waited_ns[rate], now - begin);
}

void vg_rate(size_t bytes, bool (*closing)(const void *), const void *argument)
{
	const uint64_t taken[2] = { 1, bytes };

	for (unsigned i = 0; i < 2; i++) {
		enum vg_limit rate = i ? VG_LIMIT_BYTES : VG_LIMIT_CALLS;
		uint64_t amount = unpaid[rate] + taken[i];

		unpaid[rate] = amount;
		if (most[rate] == VG_UNLIMITED || amount < step[rate])
			continue;
		unpaid[rate] = 0;
		wait_for_turn(rate, amount, closing, argument);
	}
}

void vg_rate_end(void)
{
	for (unsigned rate = VG_LIMITS_HELD; rate < VG_LIMITS; rate++)
		if (unpaid[rate] && most[rate] != VG_UNLIMITED)
			pay((enum vg_limit)rate, unpaid[rate], read_clock());
}

/* ---- the server's */

/*
 * The new limit stands before what is held is read, and a charge says what it asks for before it reads the limit: a charge
 * that is decided meanwhile sees the new limit, or is seen.
 */
static bool shrink_to(uint64_t bytes)
{
	uint64_t held;

	atomic_store(&table->device_memory, bytes);
	for (unsigned round = 0; round < ROUNDS; round++) {
		if (fits(VG_LIMIT_DEVICE_MEMORY, &held))
			return true;
		if (held > bytes)
			return false;
		give_way(round);
	}
	return false;
}

int vg_limits_change_memory(uint64_t bytes)
{
	uint64_t before = most[VG_LIMIT_DEVICE_MEMORY];

	if (before == VG_UNLIMITED || !bytes || bytes > INT64_MAX)
		return -EINVAL;
	if (!shrink_to(bytes)) {
		atomic_store(&table->device_memory, before);
		return -EBUSY;
	}
	most[VG_LIMIT_DEVICE_MEMORY] = bytes;
	return 0;
}

void vg_limits_drop(uint32_t number)
{
	struct vg_limit_row *ended = &table->row[number];

	for (unsigned i = 0; i < VG_LIMITS_HELD; i++) {
		atomic_store(&ended->asked[i], 0);
		atomic_store(&ended->held[i], 0);
	}
}

/* The session was killed and charges no more. For a moment both rows hold its charges, so that the sum is never too low. */
void vg_limits_move(uint32_t lane, uint32_t to)
{
	for (unsigned i = 0; i < VG_LIMITS_HELD; i++)
		atomic_store(&table->row[to].held[i], atomic_load(&table->row[lane].held[i]));
	vg_limits_drop(lane);
}

void vg_limits_add(uint32_t number, uint64_t bytes)
{
	atomic_fetch_add(&table->row[number].held[VG_LIMIT_DEVICE_MEMORY], bytes);
}

void vg_limits_keep(uint64_t bytes)
{
	vg_limits_add(VG_LIMIT_KEPT_ROW, bytes);
}

void vg_limits_release(uint64_t bytes)
{
	atomic_fetch_sub(&table->row[VG_LIMIT_KEPT_ROW].held[VG_LIMIT_DEVICE_MEMORY], bytes);
}

void vg_limits_publish(struct vg_stats *stats)
{
	for (unsigned i = 0; i < VG_LIMITS; i++) {
		struct vg_limit_stats *to = &stats->limit[i];

		vg_store64(&to->most, most[i]);
		vg_store64(&to->used, i < VG_LIMITS_HELD ? vg_limit_used((enum vg_limit)i) : 0);
		vg_store64(&to->refused, atomic_load(&table->refused[i]));
		vg_store64(&to->waited_ns, atomic_load(&table->waited_ns[i]));
	}
	vg_store32(&stats->limits, VG_LIMITS);
}
