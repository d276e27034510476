/* SPDX-License-Identifier: Apache-2.0 */
/* TLS 1.3 with a certificate on both sides, on sockets that do not wait. */
#ifndef VG_LINK_TLS_H
#define VG_LINK_TLS_H

#include <openssl/ssl.h>

#include "stream.h"

/* What a verified certificate of a host says: docs/link-protocol.md, "Identities". */
struct vg_link_peer {
	char host[65], claim[65], attachment[65];
};

/* The certificate authorities of one host. */
struct vg_link_trust {
	char host[65];
	X509_STORE *store;
};

/* cert.pem, key.pem, peer.pem and peer.name of a directory. NULL: text says why. */
SSL *vg_tls_client(const char *directory, int socket, char *text, size_t size);
/* The server's identity, to be read while this process may. */
SSL_CTX *vg_tls_identity(const char *directory, char *text, size_t size);
/* All HOST.pem of a directory; how many, or negative. */
int vg_tls_trust(const char *directory, struct vg_link_trust *trust, unsigned most, char *text, size_t size);
/* The list, which the callback reads, ends with an entry without a store. */
SSL *vg_tls_server(SSL_CTX *identity, const struct vg_link_trust *trust, int socket);
/* 0 when it is done; -EAGAIN: wait for vg_tls_events(); -ECONNRESET: it was cut; else it is refused. text says why. */
int vg_tls_handshake(SSL *ssl, char *text, size_t size);
short vg_tls_events(const SSL *ssl);
/* Of a server's connection whose handshake is done. */
int vg_tls_peer(const SSL *ssl, struct vg_link_peer *peer);
struct vg_link_io vg_tls_io(SSL *ssl);

#endif
