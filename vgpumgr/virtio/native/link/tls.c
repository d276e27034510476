/* SPDX-License-Identifier: Apache-2.0 */
#include "tls.h"

#include <dirent.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "message.h"

#define CIPHERS "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
enum { READ_AHEAD = 64 << 10 };

/* Wire form of the one protocol that there is: its length, its name. */
static const unsigned char protocols[] = "\x0e" VG_LINK_ALPN;
_Static_assert(sizeof(protocols) - 2 == 0x0e, "length of the name");

static void say_why(char *text, size_t size, const char *what)
{
	unsigned long code = ERR_peek_last_error();
	const char *reason = code ? ERR_reason_error_string(code) : NULL;

	snprintf(text, size, "%s: %s", what, reason ? reason : "the connection ended");
	ERR_clear_error();
}

/* ---- contexts ---- */

static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *length, const unsigned char *theirs,
			   unsigned theirs_length, void *unused)
{
	unsigned char *chosen;

	(void)ssl, (void)unused;
	if (SSL_select_next_proto(&chosen, length, protocols, sizeof(protocols) - 1, theirs, theirs_length) !=
	    OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*out = protocols + 1;
	return SSL_TLSEXT_ERR_OK;
}

static SSL_CTX *make_context(const SSL_METHOD *method, const char *directory, char *text, size_t size)
{
	char certificate[512], key[512];
	SSL_CTX *context;

	OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, NULL);
	ERR_clear_error();
	context = SSL_CTX_new(method);
	snprintf(certificate, sizeof(certificate), "%s/cert.pem", directory);
	snprintf(key, sizeof(key), "%s/key.pem", directory);
	if (!context || !SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) ||
	    !SSL_CTX_set_ciphersuites(context, CIPHERS) || !SSL_CTX_set_num_tickets(context, 0)) {
		say_why(text, size, "cannot use TLS 1.3");
	} else if (SSL_CTX_use_certificate_chain_file(context, certificate) != 1) {
		say_why(text, size, certificate);
	} else if (SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1 || !SSL_CTX_check_private_key(context)) {
		say_why(text, size, key);
	} else {
		SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
		SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
		SSL_CTX_set_read_ahead(context, 1);
		SSL_CTX_set_default_read_buffer_len(context, READ_AHEAD);
		return context;
	}
	SSL_CTX_free(context);
	return NULL;
}

SSL_CTX *vg_tls_identity(const char *directory, char *text, size_t size)
{
	SSL_CTX *context = make_context(TLS_server_method(), directory, text, size);

	if (context)
		SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
	return context;
}

static SSL *on_socket(SSL_CTX *context, int socket)
{
	SSL *ssl = context ? SSL_new(context) : NULL;

	if (ssl && SSL_set_fd(ssl, socket) == 1)
		return ssl;
	SSL_free(ssl);
	return NULL;
}

/* ---- the relay's side ---- */

static int read_name(const char *directory, char *name, size_t size)
{
	char path[512];
	FILE *file;
	bool got;

	snprintf(path, sizeof(path), "%s/peer.name", directory);
	file = fopen(path, "re");
	got = file && fgets(name, (int)size, file);
	if (file)
		fclose(file);
	if (!got)
		return -ENOENT;
	name[strcspn(name, "\r\n")] = '\0';
	return *name ? 0 : -EINVAL;
}

SSL *vg_tls_client(const char *directory, int socket, char *text, size_t size)
{
	SSL_CTX *context = make_context(TLS_client_method(), directory, text, size);
	char authority[512], name[256];
	SSL *ssl = NULL;

	if (!context)
		return NULL;
	snprintf(authority, sizeof(authority), "%s/peer.pem", directory);
	if (SSL_CTX_load_verify_file(context, authority) != 1)
		say_why(text, size, authority);
	else if (read_name(directory, name, sizeof(name)))
		snprintf(text, size, "%s/peer.name has no name", directory);
	else
		ssl = on_socket(context, socket);
	SSL_CTX_free(context); /* ssl has a reference */
	if (!ssl)
		return NULL;
	SSL_set_verify(ssl, SSL_VERIFY_PEER, NULL);
	SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	if (!SSL_set1_host(ssl, name) || SSL_set_alpn_protos(ssl, protocols, sizeof(protocols) - 1) ||
	    !SSL_set_tlsext_host_name(ssl, name)) {
		say_why(text, size, "cannot use TLS 1.3");
		SSL_free(ssl);
		return NULL;
	}
	SSL_set_connect_state(ssl);
	return ssl;
}

/* ---- the other side: which host it is ---- */

static bool is_word(const char *text)
{
	for (const char *at = text; *at; at++)
		if (!(*at >= 'a' && *at <= 'z') && !(*at >= 'A' && *at <= 'Z') && !(*at >= '0' && *at <= '9') &&
		    !strchr("._-", *at))
			return false;
	return *text && *text != '.';
}

/* The only entry of that kind. */
static int read_entry(const X509 *certificate, int kind, char *text, size_t size)
{
	X509_NAME *name = X509_get_subject_name(certificate);
	int at = X509_NAME_get_index_by_NID(name, kind, -1), length;
	unsigned char *utf8 = NULL;
	bool good;

	if (at < 0 || X509_NAME_get_index_by_NID(name, kind, at) >= 0)
		return -EINVAL;
	length = ASN1_STRING_to_UTF8(&utf8, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at)));
	if (length < 0)
		return -EINVAL;
	good = (size_t)length < size && strlen((const char *)utf8) == (size_t)length;
	if (good)
		memcpy(text, utf8, (size_t)length + 1);
	OPENSSL_free(utf8);
	return good && is_word(text) ? 0 : -EINVAL;
}

static int read_peer(const X509 *certificate, struct vg_link_peer *peer)
{
	int error = read_entry(certificate, NID_organizationName, peer->host, sizeof(peer->host));

	if (!error)
		error = read_entry(certificate, NID_commonName, peer->claim, sizeof(peer->claim));
	if (!error)
		error = read_entry(certificate, NID_organizationalUnitName, peer->attachment, sizeof(peer->attachment));
	return error;
}

static X509_STORE *find_trust(const struct vg_link_trust *trust, const char *host)
{
	for (; trust->store; trust++)
		if (!strcmp(trust->host, host))
			return trust->store;
	return NULL;
}

/* In the place of OpenSSL's: each host's certificates are verified with that host's authority alone. */
static int verify(X509_STORE_CTX *given, void *trust)
{
	X509 *certificate = X509_STORE_CTX_get0_cert(given);
	X509_STORE_CTX *own = X509_STORE_CTX_new();
	struct vg_link_peer peer;
	X509_STORE *store;
	int good = 0;

	X509_STORE_CTX_set_error(given, X509_V_ERR_CERT_UNTRUSTED);
	if (own && certificate && !read_peer(certificate, &peer) && (store = find_trust(trust, peer.host)) &&
	    X509_STORE_CTX_init(own, store, certificate, X509_STORE_CTX_get0_untrusted(given)) &&
	    X509_STORE_CTX_set_default(own, "ssl_client")) {
		good = X509_verify_cert(own) == 1;
		X509_STORE_CTX_set_error(given, X509_STORE_CTX_get_error(own));
	}
	X509_STORE_CTX_free(own);
	return good;
}

static X509_STORE *load_store(const char *path)
{
	X509_STORE *store = X509_STORE_new();

	if (store && X509_STORE_load_file(store, path) == 1)
		return store;
	X509_STORE_free(store);
	return NULL;
}

int vg_tls_trust(const char *directory, struct vg_link_trust *trust, unsigned most, char *text, size_t size)
{
	DIR *files = opendir(directory);
	struct dirent *entry;
	unsigned count = 0;

	trust[0].store = NULL;
	if (!files) {
		snprintf(text, size, "%s: %s", directory, strerror(errno));
		return -errno;
	}
	while ((entry = readdir(files)) && count + 1 < most) {
		struct vg_link_trust *one = &trust[count];
		size_t length = strlen(entry->d_name);
		char path[1024];

		if (length < 5 || length - 4 >= sizeof(one->host) || strcmp(entry->d_name + length - 4, ".pem"))
			continue;
		snprintf(one->host, sizeof(one->host), "%.*s", (int)(length - 4), entry->d_name);
		snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
		one->store = is_word(one->host) ? load_store(path) : NULL;
		if (one->store)
			trust[++count].store = NULL;
	}
	closedir(files);
	ERR_clear_error();
	return (int)count;
}

SSL *vg_tls_server(SSL_CTX *identity, const struct vg_link_trust *trust, int socket)
{
	SSL *ssl;

	SSL_CTX_set_cert_verify_callback(identity, verify, (void *)trust);
	ssl = on_socket(identity, socket);
	if (!ssl)
		return NULL;
	SSL_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	SSL_set_accept_state(ssl);
	return ssl;
}

/* ---- both ---- */

int vg_tls_handshake(SSL *ssl, char *text, size_t size)
{
	const unsigned char *protocol;
	unsigned length;
	long verified;
	bool cut;
	int result, error;

	ERR_clear_error();
	result = SSL_do_handshake(ssl);
	error = SSL_get_error(ssl, result);
	if (result == 1) {
		SSL_get0_alpn_selected(ssl, &protocol, &length);
		if (length == sizeof(protocols) - 2 && !memcmp(protocol, protocols + 1, length))
			return 0;
		snprintf(text, size, "the other side does not speak %s", VG_LINK_ALPN);
		return -EPROTO;
	}
	if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
		return -EAGAIN;
	cut = error == SSL_ERROR_SYSCALL || ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
	verified = SSL_get_verify_result(ssl);
	if (verified != X509_V_OK)
		snprintf(text, size, "its certificate is refused: %s", X509_verify_cert_error_string(verified));
	else if (cut)
		snprintf(text, size, "the other host has closed the connection");
	else
		say_why(text, size, "TLS");
	ERR_clear_error();
	return cut ? -ECONNRESET : -EACCES;
}

short vg_tls_events(const SSL *ssl)
{
	return SSL_want_write(ssl) ? POLLOUT : POLLIN;
}

int vg_tls_peer(const SSL *ssl, struct vg_link_peer *peer)
{
	X509 *certificate = SSL_get0_peer_certificate(ssl);

	return certificate ? read_peer(certificate, peer) : -EACCES;
}

static ssize_t result_of(SSL *ssl, int n)
{
	int error = SSL_get_error(ssl, n), reason = ERR_GET_REASON(ERR_peek_last_error());

	ERR_clear_error();
	/* a server sees the client's certificate when the client takes the handshake for done */
	if (error == SSL_ERROR_SSL && reason > SSL_AD_REASON_OFFSET)
		return -EACCES;
	if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
		return -EAGAIN;
	return error == SSL_ERROR_ZERO_RETURN ? 0 : -ECONNRESET;
}

static ssize_t read_tls(void *ssl, void *to, size_t size)
{
	int n = SSL_read(ssl, to, (int)size);

	return n > 0 ? n : result_of(ssl, n);
}

static ssize_t write_tls(void *ssl, const void *from, size_t size)
{
	int n = SSL_write(ssl, from, (int)size);

	return n > 0 ? n : result_of(ssl, n);
}

struct vg_link_io vg_tls_io(SSL *ssl)
{
	return (struct vg_link_io){ .context = ssl, .read = read_tls, .write = write_tls };
}
