/* SPDX-License-Identifier: Apache-2.0 */

/* See socket.h. The libcurl of Debian 12 has no WebSocket support. It makes the connection, and
 * this file does the handshake. */

#include "cli/session/socket.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "proto/websocket.h"

#include <curl/curl.h>
#include <errno.h>
#include <nettle/base64.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* ANSWER_MAX is in bytes; KEY_BYTES is what RFC 6455 says. */
enum { ANSWER_MAX = 64 << 10, CONNECT_S = 10, ANSWER_MS = 30000, KEY_BYTES = 16 };

void client_socket_done(struct client_socket *s)
{
    curl_easy_cleanup(s->curl);
    buf_done(&s->rest);
}

ssize_t client_socket_receive(struct client_socket *s, void *to, size_t len)
{
    size_t n = s->rest.len - s->rest_at;
    if (n > 0) {
        n = n < len ? n : len;
        memcpy(to, s->rest.data + s->rest_at, n);
        s->rest_at += n;
        return (ssize_t)n;
    }
    CURLcode code = curl_easy_recv(s->curl, to, len, &n);
    return code == CURLE_OK ? (ssize_t)n : code == CURLE_AGAIN ? -EAGAIN : -EPIPE;
}

ssize_t client_socket_send(struct client_socket *s, const void *data, size_t len)
{
    size_t n = 0;
    CURLcode code = curl_easy_send(s->curl, data, len, &n);
    return code == CURLE_OK ? (ssize_t)n : code == CURLE_AGAIN ? -EAGAIN : -EPIPE;
}

static int connect_to(const struct client *client, struct client_socket *s, struct err *err)
{
    curl_socket_t fd = CURL_SOCKET_BAD;
    (void)curl_easy_setopt(s->curl, CURLOPT_URL, client->url);
    (void)curl_easy_setopt(s->curl, CURLOPT_CONNECT_ONLY, 1L);
    (void)curl_easy_setopt(s->curl, CURLOPT_HTTPPROXYTUNNEL, 1L);
    (void)curl_easy_setopt(s->curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    (void)curl_easy_setopt(s->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(s->curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    (void)curl_easy_setopt(s->curl, CURLOPT_NOSIGNAL, 1L);
    if (client->unix_path) {
        (void)curl_easy_setopt(s->curl, CURLOPT_UNIX_SOCKET_PATH, client->unix_path);
        (void)curl_easy_setopt(s->curl, CURLOPT_NOPROXY, "*");
    }
    CURLcode code = curl_easy_perform(s->curl);
    if (code == CURLE_OK)
        code = curl_easy_getinfo(s->curl, CURLINFO_ACTIVESOCKET, &fd);
    if (code != CURLE_OK || fd == CURL_SOCKET_BAD)
        return err_set(err, ERR_UNAVAILABLE, EIO, "%s: %s; is `hermes serve` running there?",
            client->unix_path ? client->unix_path : client->url, curl_easy_strerror(code));
    s->fd = fd;
    return 0;
}

/* The whole request. */
static char *write_request(const struct client *client, const char *path, const char *key)
{
    CURLU *url = curl_url();
    char *host = NULL;
    char *port = NULL;
    char *above = NULL;
    (void)curl_url_set(url, CURLUPART_URL, client->url, 0);
    (void)curl_url_get(url, CURLUPART_HOST, &host, 0);
    (void)curl_url_get(url, CURLUPART_PORT, &port, 0);
    (void)curl_url_get(url, CURLUPART_PATH, &above, 0);
    size_t len = above ? strlen(above) : 0;
    while (len && above[len - 1] == '/')
        len--;
    char *text = xasprintf("GET %.*s%s HTTP/1.1\r\nHost: %s%s%s\r\n%s%s%s"
                           "Upgrade: websocket\r\nConnection: Upgrade\r\n"
                           "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n",
        (int)len, above ? above : "", path, host ? host : "localhost", port ? ":" : "",
        port ? port : "", client->key ? "X-API-Key: " : "", client->key ? client->key : "",
        client->key ? "\r\n" : "", key);
    curl_free(host);
    curl_free(port);
    curl_free(above);
    curl_url_cleanup(url);
    return text;
}

static int broke_off(struct err *err)
{
    return err_set(err, ERR_UNAVAILABLE, EPIPE, "the server closed the connection");
}

/* Reads until `answer` has `want` bytes, or with 0 until its head is complete. */
static int read_answer(
    struct client_socket *s, struct buf *answer, size_t want, struct err *err)
{
    char bytes[4096];
    while (want ? answer->len < want : !answer->data || !strstr(answer->data, "\r\n\r\n")) {
        struct pollfd ready = {.fd = s->fd, .events = POLLIN};
        ssize_t n = client_socket_receive(s, bytes, sizeof(bytes));
        if (n == -EAGAIN && poll(&ready, 1, ANSWER_MS) == 1)
            continue;
        if (n <= 0 || buf_append(answer, bytes, (size_t)n) < 0)
            return broke_off(err);
    }
    return 0;
}

/* The value of a header, or NULL. Ends its line with a NUL. */
static char *find_header(char *head, const char *name)
{
    for (char *line = strstr(head, "\r\n"); line; line = strstr(line + 2, "\r\n")) {
        size_t len = strlen(name);
        if (strncasecmp(line + 2, name, len) != 0 || line[2 + len] != ':')
            continue;
        char *value = line + 3 + len;
        value += strspn(value, " \t");
        value[strcspn(value, "\r")] = '\0';
        return value;
    }
    return NULL;
}

static int take_answer(struct client_socket *s, const char *key, struct err *err)
{
    char accept[WEBSOCKET_ACCEPT];
    cleanup_buf struct buf answer;
    buf_init(&answer, ANSWER_MAX);
    int r = read_answer(s, &answer, 0, err);
    if (r < 0)
        return r;
    size_t head_len = (size_t)(strstr(answer.data, "\r\n\r\n") - answer.data) + 4;
    uint32_t status = 0;
    cleanup_free char *number = xstrndup(answer.data, strnlen(answer.data, 12));
    if (!str_has_prefix(number, "HTTP/1.1 ") || str_parse_u32(number + 9, &status) < 0)
        return err_set(err, ERR_INTERNAL, EPROTO,
            "the answer is not HTTP; check that --unix or --url names a Hermes server");
    cleanup_free char *head = xstrndup(answer.data, head_len);
    const char *value =
        find_header(head, status == 101 ? "Sec-WebSocket-Accept" : "Content-Length");
    if (status == 101) {
        if (!value || !websocket_accept(key, accept) || !str_eq(value, accept))
            return err_set(err, ERR_INTERNAL, EPROTO,
                "the server did not answer as a WebSocket; check that --unix or --url names a "
                "Hermes server");
        return buf_append(&s->rest, answer.data + head_len, answer.len - head_len);
    }
    size_t body_len = value ? strtoul(value, NULL, 10) : 0;
    if (body_len > ANSWER_MAX - head_len)
        body_len = 0;
    if (body_len && (r = read_answer(s, &answer, head_len + body_len, err)) < 0)
        return r;
    return client_refused(answer.data + head_len, body_len, status, err);
}

int client_socket_open(
    const struct client *client, const char *path, struct client_socket *ret, struct err *err)
{
    uint8_t random[KEY_BYTES];
    char key[BASE64_ENCODE_RAW_LENGTH(KEY_BYTES) + 1] = "";
    *ret = (struct client_socket){.curl = curl_easy_init(), .fd = -1};
    buf_init(&ret->rest, ANSWER_MAX);
    if (!ret->curl || getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return err_set(err, ERR_INTERNAL, ENOMEM, "out of memory");
    base64_encode_raw(key, sizeof(random), random);
    int r = connect_to(client, ret, err);
    if (r < 0)
        return r;
    cleanup_free char *request = write_request(client, path, key);
    size_t len = strlen(request);
    /* A new connection has room for a whole request. */
    if (client_socket_send(ret, request, len) != (ssize_t)len)
        return broke_off(err);
    return take_answer(ret, key, err);
}
