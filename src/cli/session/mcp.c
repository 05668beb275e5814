/* SPDX-License-Identifier: Apache-2.0 */

/* See mcp.h. A line of stdin is one POST, on a thread of its own; what comes back, JSON or a
 * stream, goes to stdout line by line. The session of the handshake wire and the headers of the
 * stateless one are made here. A server that fails is an error with the request's id. */

#include "cli/session/mcp.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/os/thread.h"
#include "base/str.h"
#include "json/body.h"

#include <curl/curl.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define META_VERSION "io.modelcontextprotocol/protocolVersion"

enum {
    LINE_MAX_BYTES = 32 << 20,
    CHUNK = 64 << 10,
    CONNECT_S = 10,
    THREADS_MAX = 64,
    FAILED = -32603
};

static struct {
    char *url;
    const char *unix_path;
    const char *key;
    pthread_mutex_t lock; /* of stdout and everything below */
    char *session;
    char *version; /* that the handshake chose */
    struct post *posts;
    unsigned count;
    atomic_bool is_ending;
} bridge = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A message on its way. */
struct post {
    json_t *message; /* NULL: the standing stream */
    bool is_initialize;
    bool is_modern;
    atomic_bool is_cancelled;
    bool is_answered;
    CURL *curl;
    struct curl_slist *headers;
    struct buf answer;
    struct post *next;
};

static void write_line(const char *text, size_t len)
{
    (void)pthread_mutex_lock(&bridge.lock);
    (void)fs_write_all(STDOUT_FILENO, text, len);
    (void)fs_write_all(STDOUT_FILENO, "\n", 1);
    (void)pthread_mutex_unlock(&bridge.lock);
}

static const json_t *id_of(const struct post *p)
{
    return p->message ? json_object_get(p->message, "id") : NULL;
}

static bool is_request(const struct post *p)
{
    return id_of(p) && json_object_get(p->message, "method");
}

static void write_message(const json_t *message)
{
    cleanup_free char *text = json_dumps(message, JSON_COMPACT);
    if (text)
        write_line(text, strlen(text));
}

static void write_error(const json_t *id, const char *why)
{
    json_t *message = json_pack(
        "{s:s, s:{s:i, s:s}}", "jsonrpc", "2.0", "error", "code", FAILED, "message", why);
    if (id)
        (void)json_object_set(message, "id", (json_t *)id);
    write_message(message);
    json_decref(message);
}

/* Keeps what the handshake says. */
static void note_version(const json_t *message)
{
    const char *version = json_string_value(
        json_object_get(json_object_get(message, "result"), "protocolVersion"));
    if (!version)
        return;
    (void)pthread_mutex_lock(&bridge.lock);
    free(bridge.version);
    bridge.version = xstrdup(version);
    (void)pthread_mutex_unlock(&bridge.lock);
}

/* A message of the server. An error without an id answers this request. */
static void take_answer(struct post *p, const char *text, size_t len)
{
    json_t *message = json_loadb(text, len, JSON_ALLOW_NUL, NULL);
    bool is_response = json_object_get(message, "result") || json_object_get(message, "error");
    if (p->is_initialize)
        note_version(message);
    if (is_response && is_request(p) && !json_object_get(message, "id"))
        (void)json_object_set(message, "id", (json_t *)id_of(p));
    p->is_answered = p->is_answered || is_response;
    if (message && (is_response ? is_request(p) : true))
        write_message(message);
    json_decref(message);
}

/* Takes the complete events off the answer. */
static void take_events(struct post *p)
{
    char *at = p->answer.data;
    char *end;
    while (at && (end = strstr(at, "\n\n"))) {
        *end = '\0';
        char *data = str_has_prefix(at, "data: ") ? at : strstr(at, "\ndata: ");
        if (data) {
            data += *data == '\n';
            data += strlen("data: ");
            size_t len = strcspn(data, "\n");
            if (len)
                take_answer(p, data, len);
        }
        at = end + 2;
    }
    if (at && at != p->answer.data) {
        size_t left = p->answer.len - (size_t)(at - p->answer.data);
        memmove(p->answer.data, at, left + 1);
        p->answer.len = left;
    }
}

static bool is_stream(const struct post *p)
{
    const char *type = NULL;
    (void)curl_easy_getinfo(p->curl, CURLINFO_CONTENT_TYPE, &type);
    return type && str_has_prefix(type, "text/event-stream");
}

static size_t on_bytes(char *data, size_t size, size_t count, void *context)
{
    struct post *p = context;
    if (buf_append(&p->answer, data, size * count) < 0)
        return 0;
    if (is_stream(p))
        take_events(p);
    return size * count;
}

static int on_progress(
    void *context, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up_now)
{
    const struct post *p = context;
    return p->is_cancelled || bridge.is_ending;
}

static void add_header(struct post *p, const char *name, const char *value)
{
    if (!value)
        return;
    cleanup_free char *line = xasprintf("%s: %s", name, value);
    p->headers = curl_slist_append(p->headers, line);
}

/* The headers of the stateless wire repeat what the body says. */
static void add_modern_headers(struct post *p)
{
    const json_t *params = json_object_get(p->message, "params");
    const char *method = json_string_value(json_object_get(p->message, "method"));
    const char *name = json_string_value(json_object_get(params, "name"));
    const char *uri = json_string_value(json_object_get(params, "uri"));
    const json_t *meta = json_object_get(params, "_meta");
    add_header(
        p, "MCP-Protocol-Version", json_string_value(json_object_get(meta, META_VERSION)));
    add_header(p, "Mcp-Method", method);
    if (str_eq(method, "tools/call") || str_eq(method, "prompts/get"))
        add_header(p, "Mcp-Name", name);
    if (str_eq(method, "resources/read"))
        add_header(p, "Mcp-Name", uri);
}

static void add_legacy_headers(struct post *p)
{
    (void)pthread_mutex_lock(&bridge.lock);
    if (!p->is_initialize) {
        add_header(p, "Mcp-Session-Id", bridge.session);
        add_header(p, "MCP-Protocol-Version", bridge.version);
    }
    (void)pthread_mutex_unlock(&bridge.lock);
}

static void set_up(struct post *p, const char *method, const char *body)
{
    add_header(p, "X-API-Key", bridge.key);
    add_header(
        p, "Accept", p->message ? "application/json, text/event-stream" : "text/event-stream");
    p->headers = curl_slist_append(p->headers, "Expect:"); /* do not wait for 100 Continue */
    if (p->is_modern)
        add_modern_headers(p);
    else
        add_legacy_headers(p);
    (void)curl_easy_setopt(p->curl, CURLOPT_URL, bridge.url);
    (void)curl_easy_setopt(p->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(p->curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    (void)curl_easy_setopt(p->curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(p->curl, CURLOPT_WRITEFUNCTION, on_bytes);
    (void)curl_easy_setopt(p->curl, CURLOPT_WRITEDATA, p);
    (void)curl_easy_setopt(p->curl, CURLOPT_NOPROGRESS, 0L);
    (void)curl_easy_setopt(p->curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    (void)curl_easy_setopt(p->curl, CURLOPT_XFERINFODATA, p);
    if (body) {
        add_header(p, "Content-Type", "application/json");
        (void)curl_easy_setopt(p->curl, CURLOPT_POSTFIELDS, body);
        (void)curl_easy_setopt(p->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(body));
    } else {
        (void)curl_easy_setopt(p->curl, CURLOPT_CUSTOMREQUEST, method);
    }
    if (bridge.unix_path) {
        (void)curl_easy_setopt(p->curl, CURLOPT_UNIX_SOCKET_PATH, bridge.unix_path);
        (void)curl_easy_setopt(p->curl, CURLOPT_NOPROXY, "*");
    }
    (void)curl_easy_setopt(p->curl, CURLOPT_HTTPHEADER, p->headers);
}

static void note_session(const struct post *p)
{
    struct curl_header *header;
    if (!p->is_initialize ||
        curl_easy_header(p->curl, "Mcp-Session-Id", 0, CURLH_HEADER, -1, &header) != CURLHE_OK)
        return;
    (void)pthread_mutex_lock(&bridge.lock);
    free(bridge.session);
    bridge.session = xstrdup(header->value);
    (void)pthread_mutex_unlock(&bridge.lock);
}

static void post_free(struct post *p)
{
    json_decref(p->message);
    curl_easy_cleanup(p->curl);
    curl_slist_free_all(p->headers);
    buf_done(&p->answer);
    free(p);
}

static void unlist(struct post *p)
{
    (void)pthread_mutex_lock(&bridge.lock);
    struct post **link = &bridge.posts;
    while (*link && *link != p)
        link = &(*link)->next;
    if (*link) {
        *link = p->next;
        bridge.count--;
    }
    (void)pthread_mutex_unlock(&bridge.lock);
}

/* Sends the message, and writes what comes back. Frees it. */
static void *perform(void *arg)
{
    struct post *p = arg;
    cleanup_free char *body = p->message ? json_dumps(p->message, JSON_COMPACT) : NULL;
    set_up(p, "GET", body);
    CURLcode code = curl_easy_perform(p->curl);
    note_session(p);
    if (code == CURLE_OK && !is_stream(p) && p->answer.len)
        take_answer(p, p->answer.data, p->answer.len);
    if (is_request(p) && !p->is_answered && !p->is_cancelled && !bridge.is_ending) {
        cleanup_free char *why = xasprintf("%s: %s; is `hermes serve` running there?",
            bridge.unix_path ? bridge.unix_path : bridge.url,
            code == CURLE_OK ? "the server gave no answer" : curl_easy_strerror(code));
        write_error(id_of(p), why);
    }
    unlist(p);
    post_free(p);
    return NULL;
}

static struct post *post_new(json_t *message)
{
    struct post *p = xcalloc(1, sizeof(*p));
    const json_t *params = json_object_get(message, "params");
    p->message = json_incref(message);
    p->is_initialize =
        str_eq(json_string_value(json_object_get(message, "method")), "initialize");
    p->is_modern = json_object_get(json_object_get(params, "_meta"), META_VERSION);
    p->curl = curl_easy_init();
    buf_init(&p->answer, LINE_MAX_BYTES);
    return p;
}

static void start(struct post *p)
{
    (void)pthread_mutex_lock(&bridge.lock);
    bool is_full = bridge.count >= THREADS_MAX;
    if (!is_full) {
        p->next = bridge.posts;
        bridge.posts = p;
        bridge.count++;
    }
    (void)pthread_mutex_unlock(&bridge.lock);
    if (!is_full && thread_start(NULL, perform, p) == 0)
        return;
    if (is_request(p))
        write_error(id_of(p), "too many requests are under way; wait for one of them");
    unlist(p);
    post_free(p);
}

/* On the stateless wire a request is cancelled by closing its connection. */
static void cancel(const json_t *message)
{
    const json_t *id = json_object_get(json_object_get(message, "params"), "requestId");
    (void)pthread_mutex_lock(&bridge.lock);
    for (struct post *p = bridge.posts; p; p = p->next) {
        if (p->is_modern && id && json_equal(id_of(p), id))
            p->is_cancelled = true;
    }
    (void)pthread_mutex_unlock(&bridge.lock);
}

static void take_line(const char *line, size_t len)
{
    json_t *message = NULL;
    size_t at;
    struct err err = {0};
    if (strspn(line, " \t\r") == len)
        return;
    if (json_run_parse_any(line, len, &message, &at, &err) < 0) {
        write_error(NULL, err.message);
        return;
    }
    const char *method = json_string_value(json_object_get(message, "method"));
    struct post *p = post_new(message);
    if (str_eq(method, "notifications/cancelled"))
        cancel(message);
    /* Waits for the answer to a handshake: the next message needs its session id. */
    if (p->is_initialize || !is_request(p))
        (void)perform(p);
    else
        start(p);
    if (str_eq(method, "notifications/initialized"))
        start(post_new(NULL));
    json_decref(message);
}

static void take_lines(struct buf *input)
{
    size_t at = 0;
    char *end;
    while ((end = memchr(input->data + at, '\n', input->len - at))) {
        *end = '\0';
        take_line(input->data + at, (size_t)(end - input->data) - at);
        at = (size_t)(end - input->data) + 1;
    }
    size_t left = input->len - at;
    memmove(input->data, input->data + at, left + 1);
    input->len = left;
}

/* Ends the session, and waits a moment for the threads. */
static void end_session(void)
{
    bridge.is_ending = true;
    for (int i = 0; i < 200 && bridge.posts; i++)
        (void)poll(NULL, 0, 10);
    bridge.is_ending = false;
    if (!bridge.session)
        return;
    struct post *p = post_new(NULL);
    set_up(p, "DELETE", NULL);
    (void)curl_easy_perform(p->curl);
    post_free(p);
}

int remote_mcp(int argc, char **argv)
{
    struct buf input;
    ssize_t n;
    if (argc != 5)
        return 2;
    const char *url = argv[3][0] ? argv[3] : "http://localhost";
    size_t len = strlen(url);
    while (len && url[len - 1] == '/')
        len--;
    bridge.url = xasprintf("%.*s/mcp%s", (int)len, url, argv[2][0] ? "/full" : "");
    bridge.unix_path = argv[4][0] ? argv[4] : NULL;
    bridge.key = getenv("HERMES_API_KEY");
    buf_init(&input, LINE_MAX_BYTES);
    while ((n = buf_read_fd(&input, STDIN_FILENO, CHUNK)) > 0 || n == -EINTR) {
        if (n > 0)
            take_lines(&input);
    }
    end_session();
    return 0;
}
