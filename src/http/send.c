/* SPDX-License-Identifier: Apache-2.0 */

/* See send.h. */

#include "http/send.h"

#include "base/clock.h"
#include "http/client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

enum {
    HEAD_MAX = 4096,       /* bytes; HTTP_MAX_HEADERS headers and ours are less */
    PIECE_MAX = 512 << 20, /* bytes; the purse bounds a piece much earlier */
    BLOCK = 64 << 10,      /* bytes that are sent at a time */
    LINGER_MS = 1000, /* lingering ends after this or LINGER_BYTES, whichever comes first */
    LINGER_BYTES = 8 << 20,
};

static const struct {
    int status;
    const char *text;
} reasons[] = {{101, "Switching Protocols"}, {200, "OK"}, {201, "Created"}, {202, "Accepted"},
    {204, "No Content"}, {400, "Bad Request"}, {401, "Unauthorized"}, {403, "Forbidden"},
    {404, "Not Found"}, {405, "Method Not Allowed"}, {408, "Request Timeout"},
    {409, "Conflict"}, {413, "Content Too Large"}, {414, "URI Too Long"},
    {415, "Unsupported Media Type"}, {421, "Misdirected Request"},
    {422, "Unprocessable Content"}, {426, "Upgrade Required"}, {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"}, {500, "Internal Server Error"},
    {501, "Not Implemented"}, {503, "Service Unavailable"}, {505, "HTTP Version Not Supported"},
    {507, "Insufficient Storage"}};

static const char *reason_of(int status)
{
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        if (reasons[i].status == status)
            return reasons[i].text;
    }
    return "Status";
}

/* Sends everything, or returns false. */
static bool send_all(int fd, struct iovec *parts, size_t count)
{
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
    while (message.msg_iovlen > 0) {
        ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        size_t sent = (size_t)n;
        while (message.msg_iovlen > 0 && sent >= message.msg_iov->iov_len) {
            sent -= message.msg_iov->iov_len;
            message.msg_iov++;
            message.msg_iovlen--;
        }
        if (message.msg_iovlen > 0) {
            message.msg_iov->iov_base = (char *)message.msg_iov->iov_base + sent;
            message.msg_iov->iov_len -= sent;
        }
    }
    return true;
}

static bool send_text(int fd, const char *text, size_t len)
{
    struct iovec part = {(char *)text, len};
    return send_all(fd, &part, 1);
}

static void put_headers(struct buf *to, const struct http_reply *reply)
{
    (void)buf_printf(to, "HTTP/1.1 %d %s\r\n", reply->status, reason_of(reply->status));
    for (size_t i = 0; i < reply->header_count; i++)
        (void)buf_printf(to, "%s: %s\r\n", reply->headers[i].name, reply->headers[i].value);
}

static void put_date(struct buf *to)
{
    char text[40];
    struct tm tm;
    time_t now = time(NULL);
    if (gmtime_r(&now, &tm) && strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &tm))
        (void)buf_printf(to, "Date: %s\r\n", text);
}

/* How the client finds the end of the body. */
enum framing { NO_BODY, BY_LENGTH, BY_CHUNKS, BY_CLOSE };

static enum framing framing_of(const struct http_request *req, const struct http_reply *reply)
{
    if (reply->status == 204)
        return NO_BODY;
    if (!reply->read || reply->has_size)
        return BY_LENGTH;
    return req->client->wire.head.is_1_1 ? BY_CHUNKS : BY_CLOSE;
}

static void put_head(
    struct buf *to, const struct http_reply *reply, enum framing framing, bool is_last)
{
    uint64_t len = reply->read ? reply->size : reply->body_len;
    put_headers(to, reply);
    put_date(to);
    if (reply->body_len > 0 || reply->read)
        (void)buf_printf(to, "Content-Type: %s\r\n",
            reply->content_type ? reply->content_type : "application/json");
    if (framing == BY_LENGTH)
        (void)buf_printf(to, "Content-Length: %llu\r\n", (unsigned long long)len);
    else if (framing == BY_CHUNKS)
        (void)buf_append_str(to, "Transfer-Encoding: chunked\r\n");
    (void)buf_append_str(to, "X-Content-Type-Options: nosniff\r\n");
    if (reply->retry_after_s)
        (void)buf_printf(to, "Retry-After: %u\r\n", reply->retry_after_s);
    if (is_last)
        (void)buf_append_str(to, "Connection: close\r\n");
    (void)buf_append_str(to, "\r\n");
}

/* The client has REPLY_TIMEOUT_MS (connection.c) for each block of a piece. */
static bool send_piece(const struct client *c, const struct buf *piece, bool is_chunked)
{
    for (size_t at = 0; at < piece->len; at += BLOCK) {
        char size[24];
        size_t len = piece->len - at < BLOCK ? piece->len - at : BLOCK;
        int n = snprintf(size, sizeof(size), "%zx\r\n", len);
        struct iovec parts[] = {
            {size, (size_t)n}, {piece->data + at, len}, {(char *)"\r\n", 2}};
        connection_phase(c->connection, PHASE_REPLY);
        if (!(is_chunked ? send_all(c->fd, parts, 3) : send_all(c->fd, parts + 1, 1)))
            return false;
    }
    return true;
}

/* Ends a stream before its end. A client that finds the end by length or chunks notices; any
 * other sees that the connection is reset. */
static bool break_off(int fd, enum framing framing)
{
    const struct linger now = {.l_onoff = 1, .l_linger = 0};
    if (framing == BY_CLOSE)
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    return false;
}

/* Sends what `read` gives, piece by piece. While the server waits for a piece the phase is
 * PHASE_HANDLING, while the client reads one it is PHASE_REPLY. A client that does not read
 * keeps one piece in memory. When there is no memory for it, the stream breaks off. */
static bool send_stream(struct http_request *req, const struct http_reply *reply,
    enum framing framing, struct buf *piece)
{
    struct client *c = req->client;
    uint64_t sent = 0;
    for (int r = 1; r > 0 || r == -EAGAIN;) {
        buf_clear(piece);
        connection_phase(c->connection, PHASE_HANDLING);
        r = reply->read(reply->context, req, piece);
        sent += piece->len;
        bool is_broken = r < 0 && r != -EAGAIN && reply->is_exact;
        if (is_broken || piece->is_starved || (reply->has_size && sent > reply->size))
            return break_off(c->fd, framing);
        if (!send_piece(c, piece, framing == BY_CHUNKS))
            return false;
    }
    connection_phase(c->connection, PHASE_REPLY);
    if (reply->has_size && sent < reply->size)
        return break_off(c->fd, framing);
    return framing == BY_CHUNKS ? send_text(c->fd, "0\r\n\r\n", 5) : framing == BY_LENGTH;
}

static bool send_counted_stream(
    struct http_request *req, const struct http_reply *reply, enum framing framing)
{
    struct buf piece;
    struct purse purse;
    purse_open(&purse, req->state->ledger, req->owner);
    buf_init(&piece, PIECE_MAX);
    piece.purse = &purse.counts;
    bool goes_on = send_stream(req, reply, framing, &piece);
    buf_done(&piece);
    purse_close(&purse);
    return goes_on;
}

bool send_reply(struct http_request *req, struct http_reply *reply, bool is_last)
{
    int fd = req->client->fd;
    enum framing framing = framing_of(req, reply);
    bool has_body = !req->is_head && framing != NO_BODY;
    struct buf head;
    buf_init(&head, HEAD_MAX);
    put_head(&head, reply, framing, is_last || framing == BY_CLOSE);
    struct iovec parts[2] = {{head.data, head.len}};
    size_t count = 1;
    if (has_body && !reply->read && reply->body_len)
        parts[count++] =
            (struct iovec){reply->answer ? reply->answer->text : reply->body, reply->body_len};
    bool goes_on = send_all(fd, parts, count);
    buf_done(&head);
    if (goes_on && has_body && reply->read)
        goes_on = send_counted_stream(req, reply, framing);
    if (reply->read)
        reply->done(reply->context);
    reply_clear(reply);
    return goes_on && !is_last && framing != BY_CLOSE;
}

void send_switch(int fd, const struct http_reply *reply)
{
    struct buf head;
    buf_init(&head, HEAD_MAX);
    put_headers(&head, reply);
    (void)buf_append_str(&head, "\r\n");
    (void)send_text(fd, head.data, head.len);
    buf_done(&head);
}

void send_continue(int fd)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    (void)send_text(fd, text, sizeof(text) - 1);
}

/* First reads what has come already: closing a socket with unread bytes resets the connection,
 * and the client might never see the reply. */
void send_unavailable(int fd)
{
    static const char text[] =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
        "Content-Length: 104\r\nConnection: close\r\nRetry-After: 1\r\n\r\n"
        "{\"error\":{\"code\":\"unavailable\",\"message\":\"the server has no room for "
        "another client; try again later\"}}\n";
    char waste[16384];
    (void)recv(fd, waste, sizeof(waste), MSG_DONTWAIT);
    (void)send(fd, text, sizeof(text) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(fd, SHUT_WR);
}

void send_linger(int fd)
{
    char waste[65536];
    ssize_t left = LINGER_BYTES;
    uint64_t until = clock_ms() + LINGER_MS;
    struct pollfd in = {.fd = fd, .events = POLLIN};
    (void)shutdown(fd, SHUT_WR);
    while (clock_ms() < until && poll(&in, 1, LINGER_MS) > 0) {
        ssize_t n = recv(fd, waste, sizeof(waste), MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) || n >= left)
            break;
        left -= n > 0 ? n : 0;
    }
}
