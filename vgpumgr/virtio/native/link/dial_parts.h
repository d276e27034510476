/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VG_DIAL_H
#define VG_DIAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DIAL_SESSIONS = 64, DIAL_ADDRESSES = 16, DIAL_TEXT = 200 };
enum dial_state { DIAL_DIALING, DIAL_WAITING, DIAL_UP, DIAL_DOWN };

struct dial_address {
	char host[128], port[8];
};

struct dial_session {
	bool used, begun;
	int fd;
	uint32_t pid;
	char name[32];
	enum dial_state state;
	uint64_t since_s;
	unsigned connections;
	char where[DIAL_TEXT];   /* it was connected to last */
	char text[DIAL_TEXT];    /* why it is not, or what it waits for */
};

struct dialer {
	const char *directory;
	pthread_mutex_t lock;    /* of what follows */
	struct dial_session session[DIAL_SESSIONS];
	unsigned sessions;       /* that have begun */
	int broker;              /* stays for as long as there are sessions */
	bool broker_lost;        /* it has ended while there were some */
	pthread_mutex_t asking;  /* the broker: one at a time */
};
extern struct dialer dialer;

void dial_note(struct dial_session *session, enum dial_state state, const char *text);
bool dial_is_gone(const struct dial_session *session);
int dial_say(const struct dial_session *session, const char *word, const char *text);

/* dial_address.c: where to: how many; text says why there are none. May take long. */
int dial_find(struct dial_session *session, struct dial_address *address, char *text, size_t size);
/* A daemon that was started anew hears of the sessions that live: what was bound for them stays so. */
void dial_watch_broker(void);
void dial_keep_broker(struct dial_session *session);
/* A connected socket; negative: text says why not. */
int dial_connect(struct dial_session *session, const struct dial_address *address, char *where, size_t where_size,
		 char *text, size_t size);

#endif
