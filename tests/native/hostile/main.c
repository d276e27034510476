/* SPDX-License-Identifier: Apache-2.0 */
/* usage: vgpumgr-test-attacks NAME [COUNT]; NAME is one of docs and SECURITY.md: D1, D2, ... */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attacks.h"

static const struct {
	const char *name;
	attack *run;
	unsigned long count;
} attacks[] = {
	{ "D1", giant_length, 4 },
	{ "D2", zero_length, 4 },
	{ "D3", tiny_frames, 1000000 },
	{ "D4", half_a_frame, 2 },
	{ "D4-clients", silent_clients, 64 },
	{ "D5", index_jump, 4 },
	{ "D6", doorbell_storm, 2000 },
	{ "D7", churn, 1000 },
	{ "D8", wrong_version, 200 },
	{ "D9", violations, 100 },
	{ "D15", allocate_all, 5 },
	{ "D16", fragment, 20000 },
	{ "D17", pinned, 64 },
	{ "D18", pitch_overflow, 1 },
	{ "D19", many_objects, 100000 },
	{ "D20", module_bomb, 1 },
	{ "D21", long_compile, 200000 },
	{ "D22", deep_graph, 20000 },
	{ "D22-nesting", deep_nesting, 1000000 },
	{ "D23", endless, 1 },
	{ "D24-print", print_flood, 1000000 },
	{ "D24-trap", trap, 1 },
	{ "D24-assert", assertion, 1 },
	{ "D25", callbacks, 20000 },
	{ "D26", faults, 20 },
	{ "D27", names, 200 },
	{ "D28", wrong_interface, 1 },
	{ "S5", forged, 1000000 },
	{ "S5-addresses", forged_addresses, 100000 },
	{ "S5-mappings", forged_mappings, 20000 },
	{ "S5-arrays", forged_arrays, 20000 },
};

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (unsigned i = 0; argc > 1 && i < sizeof(attacks) / sizeof(attacks[0]); i++)
		if (!strcmp(attacks[i].name, argv[1]))
			return attacks[i].run(argc > 2 ? strtoul(argv[2], NULL, 0) : attacks[i].count);
	fprintf(stderr, "usage: %s NAME [COUNT]\n", argv[0]);
	return 2;
}
