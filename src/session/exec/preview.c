/* SPDX-License-Identifier: Apache-2.0 */

/* Previews: while a tool call waits for the reviewer, the rest of the exec runs in a copy of
 * the session, in which that call fails. The copy has files of its own and no network. It is a
 * session like others, counted and bounded, but in no list that a caller sees, and it ends
 * before the original goes on.
 *
 *   PREVIEW_ASKED    the interpreter was asked to fork; it waits for the call's result, so it
 *                    answers at once
 *   PREVIEW_FORKING  it has the descriptors of the copy
 *   PREVIEW_RUNNING  a thread runs the copy and ends it
 *
 * The copy's output, and so the preview, comes from untrusted code. If a step fails, there is
 * no preview, and the reviewer gets the reason. */

#include "session/exec/internal.h"

#include "approval/approval.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/thread.h"
#include "base/utf8.h"
#include "run/encode.h"
#include "state/state.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

enum {
    RUN_MS = 3000,    /* for the code */
    WHOLE_MS = 10000, /* from the call to the end of the copy */
    /* Bounds of one list in the preview: entries, bytes of an entry, bytes of all. */
    LIST_MAX = 40,
    TEXT_MAX = 200,
    LIST_BYTES = 1500,
};

enum preview_state { PREVIEW_ASKED, PREVIEW_FORKING, PREVIEW_RUNNING };

struct preview {
    struct session *s;
    struct session *copy; /* NULL before PREVIEW_FORKING */
    struct approval *approval;
    enum preview_state state;
    bool is_told; /* the reviewer does not wait for it any more */
    uint64_t deadline_ms;
    int cancel_fd; /* eventfd: readable when the copy must end */
    pthread_t thread;
    atomic_bool is_over; /* the thread is done, the copy is gone */
    struct preview_record record;
    json_t *found; /* the thread's result */
};

/* --- what the reviewer sees */

static json_t *no_preview(const char *why)
{
    json_t *reason = result_text_json(why, utf8_floor(why, strlen(why)), ENCODE_UTF8);
    return json_pack("{s:b, s:o}", "made", 0, "reason", reason);
}

/* Adds a text to a list that stays small. False when it has no room. */
static bool list_add(json_t *list, const char *text, size_t len)
{
    size_t used = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        used += json_string_length(json_array_get(list, i));
    if (len > TEXT_MAX)
        len = utf8_floor(text, TEXT_MAX);
    if (json_array_size(list) >= LIST_MAX || used + len > LIST_BYTES)
        return false;
    (void)json_array_append_new(list, result_text_json(text, len, ENCODE_UTF8));
    return true;
}

void preview_note_call(struct preview_record *record, const char *name, const json_t *input)
{
    cleanup_free char *arguments = json_dumps(input, JSON_COMPACT | JSON_SORT_KEYS);
    char text[TEXT_MAX + 1];
    (void)snprintf(text, sizeof(text), "%s %s", name, arguments ? arguments : "");
    record->more += !list_add(record->effects, text, utf8_floor(text, strlen(text)));
}

int preview_note_attempt(struct preview_record *record, const json_t *frame)
{
    const json_t *address = json_object_get(frame, "address");
    if (!record || !json_is_string(address) || json_object_size(frame) != 1)
        return -EBADMSG;
    record->more +=
        !list_add(record->attempts, json_string_value(address), json_string_length(address));
    return 0;
}

static json_t *output_json(const struct capture *c)
{
    char notice[CAPTURE_NOTICE];
    struct iovec pieces[CAPTURE_PIECES];
    char text[PREVIEW_OUTPUT + CAPTURE_NOTICE];
    size_t len = 0;
    capture_pieces(c, notice, pieces);
    for (size_t i = 0; i < CAPTURE_PIECES && len + pieces[i].iov_len <= sizeof(text); i++) {
        if (pieces[i].iov_len)
            memcpy(text + len, pieces[i].iov_base, pieces[i].iov_len);
        len += pieces[i].iov_len;
    }
    return result_text_json(text, len, ENCODE_UTF8);
}

static json_t *error_json(const json_t *error)
{
    const char *name = json_string_value(json_object_get(error, "name"));
    const char *value = json_string_value(json_object_get(error, "value"));
    char text[2 * TEXT_MAX];
    if (!name || !value)
        return json_null();
    (void)snprintf(text, sizeof(text), "%s: %s", name, value);
    return result_text_json(text, utf8_floor(text, strlen(text)), ENCODE_UTF8);
}

/* The names that fit; *ret_cut when some do not. NULL is not known. */
static json_t *files_json(const struct exec_result *result, bool *ret_cut)
{
    json_t *list = result->files_changed ? json_array() : json_null();
    *ret_cut = result->files_cut;
    for (size_t i = 0; i < json_array_size(result->files_changed); i++) {
        const json_t *name = json_array_get(result->files_changed, i);
        if (!list_add(list, json_string_value(name), json_string_length(name)))
            *ret_cut = true;
    }
    return list;
}

static json_t *describe(const struct preview *p, const struct exec_result *result)
{
    bool is_cut;
    json_t *files = files_json(result, &is_cut);
    return json_pack("{s:b, s:s, s:o, s:o, s:o, s:b, s:O, s:O, s:I, s:o, s:o}", "made", 1,
        "status", run_status_name(result->status), "exit_code",
        result->exited ? json_integer(result->exit_code) : json_null(), "error",
        error_json(result->error), "files_changed", files, "files_cut", is_cut,
        "connections_tried", p->record.attempts, "effects_refused", p->record.effects, "more",
        (json_int_t)p->record.more, "stdout", output_json(&result->out), "stderr",
        output_json(&result->err));
}

/* --- the copy, on a thread of its own */

int preview_resume(struct session *copy, const struct preview_record *record)
{
    json_t *answer =
        json_pack("{s:s, s:s}", "id", record->call, "error", "it was not approved");
    cleanup_free char *text = json_dumps(answer, JSON_COMPACT);
    json_decref(answer);
    int r = text ? channel_queue(&copy->channel, "tool_result", text, strlen(text)) : -ENOMEM;
    return r < 0 ? r : channel_write(&copy->channel);
}

/* Runs the rest of the exec. The copy is held, and is given back. */
static int run_rest(struct preview *p, struct err *err)
{
    const struct exec_spec spec = {.timeout_ms = RUN_MS, .preview = &p->record};
    const struct exec_watch watch = {.cancel_fd = p->cancel_fd};
    struct exec_result result;
    int r = place_take(p->copy, p->cancel_fd, err);
    if (r < 0) {
        session_give(p->copy);
        return r;
    }
    /* Files that were just copied do not count as changes. */
    session_changes_note(p->copy, clock_wall_ms() * 1000000);
    r = session_exec(p->copy, &spec, &watch, &result, err);
    if (r == 0)
        p->found = describe(p, &result);
    exec_result_done(&result);
    return r;
}

static void *run(void *context)
{
    struct preview *p = context;
    struct session *copy = p->copy;
    struct err err = {0};
    int r = session_wait_ready(copy, p->cancel_fd, &err);
    (void)pthread_mutex_lock(&copy->lock);
    copy->has_interpreter = r == 0;
    copy->state = SESSION_BUSY;
    (void)pthread_mutex_unlock(&copy->lock);
    if (r == 0)
        r = run_rest(p, &err);
    else
        session_give(copy);
    if (r < 0)
        p->found = no_preview(err.message[0] ? err.message : "it was given up");
    session_delete(copy);
    session_unref(copy);
    p->is_over = true;
    session_wake(p->s);
    return NULL;
}

/* --- the original, on the thread of its exec */

bool preview_is_open(const struct session *s)
{
    return s->preview;
}

bool preview_is_asking(const struct session *s)
{
    return s->preview && s->preview->state != PREVIEW_RUNNING;
}

static bool is_decided(const struct preview *p)
{
    struct err ignored = {0};
    return approval_verdict(p->approval, &ignored) != -EAGAIN;
}

bool preview_is_stuck(const struct session *s)
{
    return preview_is_asking(s) && (s->preview->is_told || is_decided(s->preview));
}

static void tell(struct preview *p, json_t *found)
{
    p->is_told = true;
    approval_preview(p->approval, found);
}

static void cancel(struct preview *p)
{
    (void)eventfd_write(p->cancel_fd, 1);
}

/* Frees a preview whose thread has ended and whose copy is gone. */
static void done(struct preview *p)
{
    p->s->preview = NULL;
    close_fd(&p->cancel_fd);
    json_decref(p->record.attempts);
    json_decref(p->record.effects);
    json_decref(p->found);
    free(p);
}

/* Ends a preview that was not made. */
static void give_up(struct preview *p, const char *why)
{
    if (p->copy)
        session_copy_drop(p->copy);
    if (!p->is_told)
        tell(p, no_preview(why));
    done(p);
}

void preview_begin(struct session *s, const char *call, struct approval *approval)
{
    struct err err = {0};
    if (s->preview || session_can_fork(s, &err) < 0) {
        approval_preview(
            approval, no_preview(s->preview ? "another one is being made" : err.message));
        return;
    }
    struct preview *p = xcalloc(1, sizeof(*p));
    p->s = s;
    p->approval = approval;
    p->deadline_ms = clock_ms() + WHOLE_MS;
    p->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    (void)snprintf(p->record.call, sizeof(p->record.call), "%s", call);
    p->record.attempts = json_array();
    p->record.effects = json_array();
    s->preview = p;
    static const char word[] = "preview";
    if (p->cancel_fd < 0 || channel_queue(&s->channel, "fork", word, sizeof(word) - 1) < 0)
        give_up(p, "the server has no room for it");
}

/* The interpreter waits for a byte. */
static void answer(struct preview *p, bool is_wanted)
{
    struct session *s = p->s;
    struct err err = {0};
    if (!is_wanted || session_copy_new(s, "", true, &p->copy, &err) < 0) {
        (void)send(s->box.channel_fd, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        give_up(p, err.message);
    } else if (session_copy_start(s, p->copy, &err) < 0) {
        give_up(p, err.message);
    } else {
        p->state = PREVIEW_FORKING;
    }
}

static void start(struct preview *p)
{
    p->state = PREVIEW_RUNNING;
    if (thread_start(&p->thread, run, p) < 0)
        give_up(p, "the server has no thread for it");
}

int preview_answered(struct session *s, const json_t *frame, bool is_done)
{
    struct preview *p = s->preview;
    const json_t *refused = json_object_get(frame, "refused");
    const char *why = json_string_value(refused);
    if (!preview_is_asking(s) || (!why && !json_is_null(refused)))
        return -EBADMSG;
    bool is_wanted = !is_done && !p->is_told && !is_decided(p);
    p->is_told = p->is_told || !is_wanted; /* an approval that is over needs no review */
    if (why) {
        char text[400];
        (void)snprintf(text, sizeof(text), "the session cannot be copied now: %s", why);
        give_up(p, text);
    } else if (p->state == PREVIEW_ASKED) {
        answer(p, is_wanted);
    } else if (is_wanted) {
        start(p);
    } else {
        give_up(p, "");
    }
    return 0;
}

uint64_t preview_tend(struct session *s)
{
    struct preview *p = s->preview;
    if (!p)
        return UINT64_MAX;
    bool is_unwanted = is_decided(p);
    bool is_late = clock_ms() >= p->deadline_ms;
    if (is_late && !p->is_told && !is_unwanted)
        tell(p, no_preview("it took too long"));
    if (p->state != PREVIEW_RUNNING)
        return p->is_told || is_unwanted ? UINT64_MAX : p->deadline_ms;
    if (is_late || is_unwanted)
        cancel(p);
    else if (!p->is_over)
        return p->deadline_ms;
    (void)pthread_join(p->thread, NULL);
    if (!p->is_told && !is_unwanted)
        tell(p, json_incref(p->found));
    done(p);
    return clock_ms(); /* the call may be decided: look at once */
}

void preview_end(struct session *s)
{
    struct preview *p = s->preview;
    if (!p)
        return;
    p->is_told = true; /* the reviewer does not wait for it any more */
    if (p->state != PREVIEW_RUNNING) {
        give_up(p, "");
        return;
    }
    cancel(p);
    (void)pthread_join(p->thread, NULL);
    done(p);
}
