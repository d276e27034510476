/* SPDX-License-Identifier: Apache-2.0 */
/* The attacks of a hostile guest, by name; each prints in one line what it tried and what became of it. */
#ifndef TEST_ATTACKS_H
#define TEST_ATTACKS_H

/* 0: the attack took place. `count` is how much of it. */
typedef int attack(unsigned long count);

/* frames.c: what stands on the wire */
attack giant_length, zero_length, tiny_frames, half_a_frame, index_jump, doorbell_storm, churn, wrong_version, wrong_interface, violations,
	names, forged, forged_mappings, forged_arrays, silent_clients;
/* calls.c: what programs of CUDA can do */
attack allocate_all, fragment, pinned, pitch_overflow, many_objects, module_bomb, long_compile, deep_nesting, deep_graph,
	endless, print_flood, trap, assertion, callbacks, faults, forged_addresses;

#endif
