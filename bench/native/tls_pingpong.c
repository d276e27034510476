/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What TLS 1.3 does between two processes of this machine, without anything around it: usage is IDENTITY PEERS LINK, directories
 * as vgpumgr-link and vgpumgr-relay have them. Prints the seconds of a round trip of 64 bytes, and bytes a second one way.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "link/tls.h"

enum { SMALL = 64, ROUNDS = 20000, PIECE = 16384 };
static const size_t total = (size_t)1 << 30;

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void fail(const char *what)
{
	fprintf(stderr, "%s\n", what);
	exit(1);
}

static void make_pair(int pair[2])
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;

	if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&address, &length))
		fail("cannot listen");
	pair[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(pair[0], (struct sockaddr *)&address, length))
		fail("cannot connect");
	pair[1] = accept(listener, NULL, NULL);
	for (int i = 0; i < 2; i++)
		setsockopt(pair[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	close(listener);
}

static void transfer(SSL *ssl, void *bytes, size_t length, int writes)
{
	for (size_t done = 0; done < length;) {
		int n = writes ? SSL_write(ssl, (char *)bytes + done, (int)(length - done)) :
				 SSL_read(ssl, (char *)bytes + done, (int)(length - done));

		if (n <= 0)
			fail("the connection has ended");
		done += (size_t)n;
	}
}

static void serve(SSL *ssl)
{
	static char bytes[PIECE];

	for (int i = 0; i < ROUNDS; i++) {
		transfer(ssl, bytes, SMALL, 0);
		transfer(ssl, bytes, SMALL, 1);
	}
	for (size_t done = 0; done < total; done += PIECE)
		transfer(ssl, bytes, PIECE, 0);
	transfer(ssl, bytes, 1, 1);
}

static void measure(SSL *ssl)
{
	static char bytes[PIECE];
	double begun = now_s(), trip;

	for (int i = 0; i < ROUNDS; i++) {
		transfer(ssl, bytes, SMALL, 1);
		transfer(ssl, bytes, SMALL, 0);
	}
	trip = (now_s() - begun) / ROUNDS;
	begun = now_s();
	for (size_t done = 0; done < total; done += PIECE)
		transfer(ssl, bytes, PIECE, 1);
	transfer(ssl, bytes, 1, 0);
	printf("%.9g %.9g\n", trip, (double)total / (now_s() - begun));
}

static void shake_hands(SSL *ssl)
{
	char text[200];

	if (!ssl || vg_tls_handshake(ssl, text, sizeof(text)))
		fail(ssl ? text : "no TLS");
}

int main(int argc, char **argv)
{
	static struct vg_link_trust trust[8];
	char text[200] = "usage: IDENTITY PEERS LINK";
	SSL_CTX *identity;
	SSL *ssl;
	int pair[2];

	if (argc != 4)
		fail(text);
	make_pair(pair);
	if (!fork()) {
		identity = vg_tls_identity(argv[1], text, sizeof(text));
		if (!identity || vg_tls_trust(argv[2], trust, 8, text, sizeof(text)) < 0)
			fail(text);
		ssl = vg_tls_server(identity, trust, pair[1]);
		shake_hands(ssl);
		serve(ssl);
		return 0;
	}
	ssl = vg_tls_client(argv[3], pair[0], text, sizeof(text));
	shake_hands(ssl);
	measure(ssl);
	return 0;
}
