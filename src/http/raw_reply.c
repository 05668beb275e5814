/* SPDX-License-Identifier: Apache-2.0 */

/* See raw_reply.h. */

#include "http/raw_reply.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <sys/socket.h>

/* In bytes. Lingering ends after LINGER_MS or LINGER_BYTES, whichever comes first. */
enum { TEXT_MAX = 1 << 20, LINGER_MS = 1000, LINGER_BYTES = 8 << 20 };

void raw_linger(int fd)
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

static void put_head(struct buf *to, const struct http_reply *reply)
{
    buf_init(to, TEXT_MAX);
    (void)buf_printf(to, "HTTP/1.1 %d %s\r\n", reply->status,
        MHD_get_reason_phrase_for((unsigned)reply->status));
    for (size_t i = 0; i < reply->header_count; i++)
        (void)buf_printf(to, "%s: %s\r\n", reply->headers[i].name, reply->headers[i].value);
}

void raw_reply(int fd, const struct http_reply *reply)
{
    cleanup_buf struct buf text;
    put_head(&text, reply);
    (void)buf_printf(&text,
        "Content-Type: %s\r\nContent-Length: %zu\r\nX-Content-Type-Options: nosniff\r\n"
        "Connection: close\r\n",
        reply->content_type ? reply->content_type : "application/json", reply->body_len);
    if (reply->retry_after_s)
        (void)buf_printf(&text, "Retry-After: %u\r\n", reply->retry_after_s);
    (void)buf_append_str(&text, "\r\n");
    (void)buf_append(&text, reply->answer ? reply->answer->text : reply->body, reply->body_len);
    (void)send(fd, text.data, text.len, MSG_NOSIGNAL);
    raw_linger(fd);
}

void raw_switch(int fd, const struct http_reply *reply)
{
    cleanup_buf struct buf text;
    put_head(&text, reply);
    (void)buf_append_str(&text, "\r\n");
    (void)send(fd, text.data, text.len, MSG_NOSIGNAL);
}

/* First reads what has come already: closing a socket with unread bytes resets the connection,
 * and the client might never see the reply. */
void raw_unavailable(int fd)
{
    static const char text[] =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
        "Content-Length: 88\r\nConnection: close\r\nRetry-After: 1\r\n\r\n"
        "{\"error\":{\"code\":\"unavailable\",\"message\":\"no thread or place is left for "
        "this "
        "client\"}}\n";
    char waste[16384];
    (void)recv(fd, waste, sizeof(waste), MSG_DONTWAIT);
    (void)send(fd, text, sizeof(text) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(fd, SHUT_WR);
}
