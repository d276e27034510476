/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's server around a window, in this process and without others: its lane 0 and its lanes are the real ones,
 * sessions are numbers. To be linked with server.c and window.c.
 */
#ifndef TEST_SERVER_H
#define TEST_SERVER_H

#include "../../vgpumgr/virtio/native/transport/worker.h"

extern struct vg_server server;
extern const struct vg_interface server_interface;

/* On the window's memory; a second time: another worker on the same. */
void server_begin(void);
void server_end(void);
/* As a turn of the server's loop; then all that nobody else may change is checked. */
void server_turn(void);
/* Sessions whose lanes have closed end; others crash. */
void server_end_sessions(bool crash);
/* From now on no process can be started, or again. */
void server_refuse_sessions(bool refuses);
/* How many lanes this worker has opened; and how many processes have one now. */
unsigned long server_opened(void);
unsigned server_held(void);

#endif
