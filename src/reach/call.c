/* SPDX-License-Identifier: Apache-2.0 */

/* One HTTP request: POST with a JSON body, no redirect, no proxy of the environment, bounded in
 * size and time. */

#include "reach/reach.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/os/fdpass.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct call {
    CURL *curl;
    struct curl_slist *headers;
    struct buf body;
    struct buf answer;
    int answer_fd;
    bool is_too_long;
    bool is_webhook;
    struct call *next; /* of reach->waiting */
};

static void call_free(struct call *call)
{
    curl_easy_cleanup(call->curl);
    curl_slist_free_all(call->headers);
    buf_done(&call->body);
    buf_done(&call->answer);
    close_fd(&call->answer_fd);
    free(call);
}

/* The socket's buffer has room for the answer, so this never waits for a slow server. */
static void answer(struct call *call, enum reach_error error, long status)
{
    size_t len = error == REACH_FINE ? call->answer.len : 0;
    const struct reach_answer head = {
        .error = error, .status = (uint32_t)status, .body_len = (uint32_t)len};
    if (send(call->answer_fd, &head, sizeof(head), MSG_NOSIGNAL | MSG_DONTWAIT) ==
            (ssize_t)sizeof(head) &&
        len > 0)
        (void)send(call->answer_fd, call->answer.data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static size_t on_data(char *data, size_t size, size_t count, void *context)
{
    struct call *call = context;
    if (buf_append(&call->answer, data, size * count) == 0)
        return size * count;
    call->is_too_long = true;
    return 0;
}

/* The body is a sealed memfd: with a pipe, a server that was taken over could block this
 * thread, also for the next server. */
static int read_body(int fd, size_t len, struct buf *to)
{
    int seals = fcntl(fd, F_GET_SEALS);
    buf_init(to, REACH_BODY_MAX);
    if (seals < 0 || !(seals & F_SEAL_WRITE))
        return -EPROTO;
    while (to->len < len) {
        ssize_t n = buf_read_fd(to, fd, len - to->len);
        if (n <= 0)
            return n < 0 ? (int)n : -EPROTO;
    }
    return 0;
}

static void add_header(struct call *call, const char *text)
{
    struct curl_slist *more = curl_slist_append(call->headers, text);
    call->headers = more ? more : call->headers;
}

static void set_options(struct call *call, const struct reach_row *row)
{
    CURL *curl = call->curl;
    add_header(call, "Content-Type: application/json");
    add_header(call, "Accept: application/json");
    add_header(call, "Expect:");
    if (row->key[0]) {
        cleanup_free char *key = xasprintf("Authorization: Bearer %s", row->key);
        add_header(call, key);
    }
    (void)curl_easy_setopt(curl, CURLOPT_URL, row->url);
    (void)curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(curl, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, call->headers);
    (void)curl_easy_setopt(curl, CURLOPT_POST, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, call->body.data ? call->body.data : "");
    (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)call->body.len);
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)row->timeout_ms);
    (void)curl_easy_setopt(curl, CURLOPT_USERAGENT, "hermes-reach");
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, call);
    (void)curl_easy_setopt(curl, CURLOPT_PRIVATE, call);
}

static void start(struct reach *reach, struct call *call)
{
    if (!call->curl || curl_multi_add_handle(reach->multi, call->curl) != CURLM_OK) {
        answer(call, REACH_REFUSED, 0);
        call_free(call);
        return;
    }
    reach->count++;
    reach->webhooks += call->is_webhook;
}

/* Nobody reads the answer of a webhook. */
static void wait_for_room(struct reach *reach, struct call *call)
{
    close_fd(&call->answer_fd);
    if (reach->waiting_count == REACH_WEBHOOKS_WAITING) {
        log_event(LOG_WARN, "the webhook is too slow: a message to it is lost", (char *)NULL);
        call_free(call);
        return;
    }
    if (!reach->waiting)
        reach->last_waiting = &reach->waiting;
    *reach->last_waiting = call;
    reach->last_waiting = &call->next;
    reach->waiting_count++;
}

static void start_waiting(struct reach *reach)
{
    while (reach->waiting && reach->webhooks < REACH_WEBHOOKS_MAX) {
        struct call *call = reach->waiting;
        reach->waiting = call->next;
        reach->waiting_count--;
        start(reach, call);
    }
}

void call_begin(struct reach *reach, const struct reach_call *message, int fds[REACH_CALL_FDS])
{
    int body_fd = fds[REACH_CALL_BODY];
    struct call *call = xcalloc(1, sizeof(*call));
    const struct reach_row *row =
        message->target < REACH_TARGETS ? &reach->table.rows[message->target] : NULL;
    call->answer_fd = fds[REACH_CALL_ANSWER];
    buf_init(&call->answer, REACH_ANSWER_MAX);
    bool is_right = row && row->url[0] && message->body_len <= REACH_BODY_MAX &&
                    read_body(body_fd, message->body_len, &call->body) == 0;
    fdpass_drop(&body_fd, 1);
    call->curl = is_right ? curl_easy_init() : NULL;
    if (call->curl)
        set_options(call, row);
    call->is_webhook = message->target == REACH_WEBHOOK;
    if (call->curl && call->is_webhook && reach->webhooks >= REACH_WEBHOOKS_MAX)
        wait_for_room(reach, call);
    else
        start(reach, call);
}

static enum reach_error error_of(const struct call *call, CURLcode result)
{
    if (call->is_too_long)
        return REACH_TOO_LONG;
    return result == CURLE_OK                   ? REACH_FINE
           : result == CURLE_OPERATION_TIMEDOUT ? REACH_TIMEOUT
                                                : REACH_UNREACHABLE;
}

void calls_advance(struct reach *reach)
{
    int running, left;
    (void)curl_multi_perform(reach->multi, &running);
    for (CURLMsg *message; (message = curl_multi_info_read(reach->multi, &left));) {
        struct call *call = NULL;
        long status = 0;
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode result = message->data.result;
        (void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&call);
        (void)curl_easy_getinfo(message->easy_handle, CURLINFO_RESPONSE_CODE, &status);
        (void)curl_multi_remove_handle(reach->multi, call->curl);
        answer(call, error_of(call, result), status);
        reach->webhooks -= call->is_webhook;
        call_free(call);
        reach->count--;
    }
    start_waiting(reach);
}
