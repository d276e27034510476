/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vgpumgr-simstate: creates, shows and changes a simulated machine's state file.
 *
 * `create` reads lines from standard input, so that neither this program needs a parser for the machine files nor
 * their reader the layout of the structures:
 *
 *	machine.FIELD VALUE      of the machine
 *	gpu                      begins a GPU
 *	gpu.FIELD VALUE          of the last GPU
 *	profile                  begins a GPU-instance profile of the last GPU
 *	profile.FIELD VALUE      of the last profile
 *	placement START SIZE     of the last profile
 *	vgpu_type                begins a type of vGPU
 *	vgpu_type.FIELD VALUE    of the last type
 *
 * `clock` gives the machine's GPUs a clock, which no later call takes away.
 * `device-time` prints for each client on a machine with a clock its process, its GPU and the nanoseconds that it had the engine.
 * `show` prints the same lines, and live instances and clients after them. `fault` sets a fault (struct sim_fault) for
 * one of the calls read, mode.set, gi.create, gi.destroy, ci.create, ci.destroy; `clear` takes all faults away. `event`
 * is one that NVML's event sets hear of: `xid` with its number, `ecc-single` or `ecc-double` with how many errors there
 * are more. `boot` leaves the machine as it is after a reboot.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "fields.h"
#include "layout.h"

static const char usage[] = "usage: vgpumgr-simstate create DIR < LINES\n"
			    "       vgpumgr-simstate show DIR\n"
			    "       vgpumgr-simstate clock DIR\n"
			    "       vgpumgr-simstate device-time DIR\n"
			    "       vgpumgr-simstate set DIR GPU FIELD VALUE\n"
			    "       vgpumgr-simstate fault DIR CALL NTH TIMES CODE DELAY_MS [GPU [after]]\n"
			    "       vgpumgr-simstate clear DIR\n"
			    "       vgpumgr-simstate event DIR GPU xid|ecc-single|ecc-double NUMBER [GI [CI]]\n"
			    "       vgpumgr-simstate boot DIR\n";

static int fail(const char *what, int err)
{
	fprintf(stderr, "vgpumgr-simstate: %s: %s\n", what, strerror(-err));
	return 1;
}

static struct sim_gpu *last_gpu(struct sim_machine *m)
{
	return m->n_gpus ? &m->gpus[m->n_gpus - 1] : NULL;
}

static struct sim_profile *last_profile(struct sim_machine *m)
{
	struct sim_gpu *g = last_gpu(m);

	return g && g->n_profiles ? &g->profiles[g->n_profiles - 1] : NULL;
}

static int begin_gpu(struct sim_machine *m)
{
	if (m->n_gpus == SIM_MAX_GPUS)
		return -E2BIG;
	m->n_gpus++;
	return 0;
}

static int begin_profile(struct sim_machine *m)
{
	struct sim_gpu *g = last_gpu(m);

	if (!g)
		return -EINVAL;
	if (g->n_profiles == SIM_MAX_PROFILES)
		return -E2BIG;
	g->n_profiles++;
	return 0;
}

static int begin_vgpu_type(struct sim_machine *m)
{
	if (m->n_vgpu_types == SIM_MAX_VGPU_TYPES)
		return -E2BIG;
	m->n_vgpu_types++;
	return 0;
}

static struct sim_vgpu_type *last_vgpu_type(struct sim_machine *m)
{
	return m->n_vgpu_types ? &m->vgpu_types[m->n_vgpu_types - 1] : NULL;
}

static int add_placement(struct sim_machine *m, const char *value)
{
	struct sim_profile *p = last_profile(m);
	struct sim_placement *at;
	char rest;

	if (!p)
		return -EINVAL;
	if (p->n_placements == SIM_MAX_PLACEMENTS)
		return -E2BIG;
	at = &p->placements[p->n_placements];
	if (sscanf(value, "%" SCNu32 " %" SCNu32 "%c", &at->start, &at->size, &rest) != 2)
		return -EINVAL;
	p->n_placements++;
	return 0;
}

static int set_in(const struct field *table, void *base, const char *name, const char *value)
{
	return base ? field_set(table, base, name, value) : -EINVAL;
}

static int take_line(struct sim_machine *m, char *line)
{
	char *value = strchr(line, ' ');

	if (value)
		*value++ = 0;
	else
		value = line + strlen(line);
	if (!strcmp(line, "gpu"))
		return begin_gpu(m);
	if (!strcmp(line, "profile"))
		return begin_profile(m);
	if (!strcmp(line, "placement"))
		return add_placement(m, value);
	if (!strncmp(line, "machine.", 8))
		return field_set(machine_fields, m, line + 8, value);
	if (!strncmp(line, "gpu.", 4))
		return set_in(gpu_fields, last_gpu(m), line + 4, value);
	if (!strncmp(line, "profile.", 8))
		return set_in(profile_fields, last_profile(m), line + 8, value);
	if (!strcmp(line, "vgpu_type"))
		return begin_vgpu_type(m);
	if (!strncmp(line, "vgpu_type.", 10))
		return set_in(vgpu_type_fields, last_vgpu_type(m), line + 10, value);
	return -EINVAL;
}

static int read_lines(struct sim_machine *m)
{
	char line[512];
	int number = 0;

	while (fgets(line, sizeof(line), stdin)) {
		int err;

		number++;
		if (!strchr(line, '\n'))
			err = -E2BIG;
		else {
			line[strcspn(line, "\n")] = 0;
			err = take_line(m, line);
		}
		if (err) {
			fprintf(stderr, "vgpumgr-simstate: line %d: %s: %s\n", number, line, strerror(-err));
			return err;
		}
	}
	return ferror(stdin) ? -EIO : 0;
}

static int create(const char *dir)
{
	struct sim_machine *m = calloc(1, sizeof(*m));
	int err = m ? read_lines(m) : -ENOMEM;

	if (!err) {
		err = sim_create(dir, m);
		if (err)
			fail(dir, err);
	}
	free(m);
	return err ? 1 : 0;
}

static void show_profile(const struct sim_profile *p)
{
	puts("profile");
	fields_print(stdout, profile_fields, p, "profile.");
	for (uint32_t i = 0; i < p->n_placements; i++)
		printf("placement %" PRIu32 " %" PRIu32 "\n", p->placements[i].start, p->placements[i].size);
}

static void show_gi(uint32_t gpu, const struct sim_gpu *g, const struct sim_gi *gi)
{
	printf("gi %" PRIu32 " %" PRIu32 " %s %" PRIu32 " %" PRIu32 "\n", gpu, gi->id, g->profiles[gi->profile].name,
	       gi->placement.start, gi->placement.size);
	for (uint32_t i = 0; i < SIM_MAX_CI; i++) {
		const struct sim_ci *ci = &gi->ci[i];

		if (ci->used)
			printf("ci %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %s\n", gpu, gi->id,
			       ci->id, ci->placement.start, ci->placement.size, ci->uuid);
	}
}

static void show_vgpus(const struct sim_machine *m)
{
	for (uint32_t i = 0; i < m->n_vgpu_types; i++) {
		puts("vgpu_type");
		fields_print(stdout, vgpu_type_fields, &m->vgpu_types[i], "vgpu_type.");
	}
	for (uint32_t i = 0; i < m->n_vgpus; i++) {
		const struct sim_vgpu *v = &m->vgpus[i];

		if (v->id)
			printf("vgpu %" PRIu32 " %" PRIu32 " %" PRId32 " %" PRIu32 " %" PRId32 " %s %s\n", v->id, v->gpu,
			       v->vf, m->vgpu_types[v->type].id, v->gi_id, *v->uuid ? v->uuid : "-",
			       *v->vm ? v->vm : "-");
	}
}

static void show_machine(const struct sim_machine *m)
{
	fields_print(stdout, machine_fields, m, "machine.");
	for (uint32_t i = 0; i < m->n_gpus; i++) {
		const struct sim_gpu *g = &m->gpus[i];

		puts("gpu");
		fields_print(stdout, gpu_fields, g, "gpu.");
		for (uint32_t p = 0; p < g->n_profiles; p++)
			show_profile(&g->profiles[p]);
		for (uint32_t k = 0; k < SIM_MAX_GI; k++)
			if (g->gi[k].used)
				show_gi(i, g, &g->gi[k]);
	}
	for (uint32_t i = 0; i < SIM_MAX_CLIENTS; i++) {
		const struct sim_client *c = &m->clients[i];

		if (c->used)
			printf("client %d %" PRIu32 " %" PRId32 " %" PRId32 " %" PRIu64 " %s\n", (int)c->pid, c->gpu,
			       c->gi_id, c->ci_id, c->memory_bytes, c->name);
	}
	show_vgpus(m);
}

static int show(const char *dir)
{
	const struct sim_machine *m;
	struct sim *sim;
	int err = sim_open(dir, &sim);

	if (err)
		return fail(dir, err);
	m = sim_read(sim);
	if (!m) {
		err = -errno;
		sim_close(sim);
		return fail(dir, err);
	}
	show_machine(m);
	sim_end(sim);
	sim_close(sim);
	return 0;
}

static int set_gpu(struct sim *sim, const char *gpu, const char *name, const char *value)
{
	struct sim_machine *m = sim_write(sim);
	unsigned long n;
	char *end;
	int err;

	if (!m)
		return -errno;
	n = strtoul(gpu, &end, 10);
	err = *end || end == gpu || n >= m->n_gpus ? -ENODEV : field_set(gpu_fields, &m->gpus[n], name, value);
	if (!err)
		return sim_commit(sim);
	sim_abort(sim);
	return err;
}

static int set(char **args)
{
	struct sim *sim;
	int err = sim_open(args[0], &sim);

	if (err)
		return fail(args[0], err);
	err = set_gpu(sim, args[1], args[2], args[3]);
	sim_close(sim);
	return err ? fail(args[2], err) : 0;
}

static int parse_call(const char *name)
{
	static const char *const names[SIM_CALLS] = { "read", "mode.set", "gi.create", "gi.destroy", "ci.create",
						      "ci.destroy" };

	for (int i = 0; i < SIM_CALLS; i++)
		if (!strcmp(names[i], name))
			return i;
	return -EINVAL;
}

/* args: CALL NTH TIMES CODE DELAY_MS [GPU [after]] */
static int set_fault(struct sim *sim, int argc, char **args)
{
	struct sim_fault f = { .gpu = argc > 5 ? atoi(args[5]) : -1, .after = argc > 6 };
	int call = parse_call(args[0]);

	if (call < 0)
		return call;
	f.call = (enum sim_call)call;
	f.nth = (uint32_t)strtoul(args[1], NULL, 10);
	f.times = (uint32_t)strtoul(args[2], NULL, 10);
	f.code = (uint32_t)strtoul(args[3], NULL, 10);
	f.delay_ms = (uint32_t)strtoul(args[4], NULL, 10);
	return f.nth && f.times ? sim_fault_set(sim, &f) : -EINVAL;
}

/* nvml.h, nvmlEventType; ECC errors are counted, too. 0: no such kind, or this GPU has no ECC. */
static uint64_t take_event(struct sim_gpu *gpu, const char *kind, uint32_t number)
{
	if (!strcmp(kind, "xid"))
		return 8;
	if (!gpu->ecc_current)
		return 0;
	if (!strcmp(kind, "ecc-single")) {
		gpu->ecc_single += number;
		return 1;
	}
	if (!strcmp(kind, "ecc-double")) {
		gpu->ecc_double += number;
		return 2;
	}
	return 0;
}

/* args: GPU KIND NUMBER [GI [CI]] */
static int add_event(struct sim *sim, int argc, char **args)
{
	struct sim_event e = { .gpu = (uint32_t)strtoul(args[0], NULL, 10),
			       .gi_id = argc > 3 ? atoi(args[3]) : -1, .ci_id = argc > 4 ? atoi(args[4]) : -1 };
	uint32_t number = (uint32_t)strtoul(args[2], NULL, 10);
	struct sim_machine *m = sim_write(sim);

	if (!m)
		return -errno;
	e.type = e.gpu < m->n_gpus ? take_event(&m->gpus[e.gpu], args[1], number) : 0;
	if (!e.type || !number) {
		sim_abort(sim);
		return -EINVAL;
	}
	e.data = e.type == 8 ? number : 0;
	m->events[m->n_events++ % SIM_MAX_EVENTS] = e;
	return sim_commit(sim);
}

/*
 * Instances and clients are gone. MIG mode is kept on Ampere, where the GPU stores it, and lost on later ones
 * (MIG user guide, "Enable MIG Mode"); pending settings have become current.
 */
static int boot(struct sim *sim)
{
	struct sim_machine *m = sim_write(sim);

	if (!m)
		return -errno;
	for (uint32_t i = 0; i < m->n_gpus; i++) {
		struct sim_gpu *g = &m->gpus[i];

		memset(g->gi, 0, sizeof(g->gi));
		g->mig_current = g->mig_pending = g->mig_needs_reset && g->mig_pending;
		g->ecc_current = g->ecc_pending;
		g->lost = g->detached = false;
		g->ecc_single = g->ecc_double = g->temperature_c = 0;
		g->compute_mode = 0;
		g->n_vfs = 0;
		g->vgpu_mixed = false;
	}
	memset(m->vgpus, 0, sizeof(m->vgpus));
	m->n_vgpus = 0;
	m->vgpu_changes++;
	memset(m->clients, 0, sizeof(m->clients));
	sim_faults_clear(sim);
	return sim_commit(sim);
}

static int show_device_time(const char *dir)
{
	const struct sim_machine *m;
	struct sim *sim;
	int err = sim_open(dir, &sim);

	if (err)
		return fail(dir, err);
	m = sim_read(sim);
	for (int i = 0; m && i < SIM_MAX_CLIENTS; i++)
		if (m->clients[i].used)
			printf("%d %u %" PRIu64 "\n", (int)m->clients[i].pid, m->clients[i].gpu, sim_engine_time(sim, i));
	if (m)
		sim_end(sim);
	sim_close(sim);
	return 0;
}

static int clear(struct sim *sim)
{
	sim_faults_clear(sim);
	return 0;
}

static int change(int argc, char **argv)
{
	struct sim *sim;
	int err = sim_open(argv[2], &sim);

	if (err)
		return fail(argv[2], err);
	if (!strcmp(argv[1], "fault"))
		err = set_fault(sim, argc - 3, argv + 3);
	else if (!strcmp(argv[1], "event"))
		err = add_event(sim, argc - 3, argv + 3);
	else if (!strcmp(argv[1], "clock"))
		sim_clock_start(sim);
	else
		err = !strcmp(argv[1], "boot") ? boot(sim) : clear(sim);
	sim_close(sim);
	return err ? fail(argv[1], err) : 0;
}

int main(int argc, char **argv)
{
	if (argc >= 8 && argc <= 10 && !strcmp(argv[1], "fault"))
		return change(argc, argv);
	if (argc >= 6 && argc <= 8 && !strcmp(argv[1], "event"))
		return change(argc, argv);
	if (argc == 3 && (!strcmp(argv[1], "boot") || !strcmp(argv[1], "clock") || !strcmp(argv[1], "clear")))
		return change(argc, argv);
	if (argc == 3 && !strcmp(argv[1], "create"))
		return create(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "show"))
		return show(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "device-time"))
		return show_device_time(argv[2]);
	if (argc == 6 && !strcmp(argv[1], "set"))
		return set(argv + 2);
	fputs(usage, stderr);
	return 2;
}
