/* SPDX-License-Identifier: Apache-2.0 */

/* Handles the frames that an interpreter sends during an exec. They are hostile: a frame that
 * does not have the documented form (docs/internals/kernels.md) is -EBADMSG. */

#include "session/exec/internal.h"

#include "base/str.h"
#include "run/decode.h"
#include "run/hint.h"
#include "state/state.h"
#include "json/read.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    DISPLAYS_MAX = 256,           /* per exec */
    DISPLAY_BYTES_MAX = 32 << 20, /* all displays of an exec together */
    BUNDLE_MAX = 64,              /* MIME types in one bundle */
    SMALL_WEIGHT = 256 << 10, /* bytes; smaller frames are parsed even if they cannot be kept */
};

static void tell(const struct exec_frames *f, const char *name, const json_t *value)
{
    if (f->watch->event)
        f->watch->event(f->watch->context, name, value);
}

static bool is_bundle(const json_t *value)
{
    return json_is_object(value) && json_object_size(value) <= BUNDLE_MAX;
}

static int take_display(struct exec_frames *f, json_t *bundle, size_t bytes)
{
    struct exec_result *result = f->result;
    if (!is_bundle(bundle))
        return -EBADMSG;
    if (f->s->tools.preview)
        return 0;
    if (json_array_size(result->displays) >= DISPLAYS_MAX ||
        f->display_bytes + bytes > DISPLAY_BYTES_MAX || !f->is_counted) {
        result->displays_cut = true;
        return 0;
    }
    f->is_kept = true;
    f->display_bytes += bytes;
    (void)json_array_append(result->displays, bundle);
    tell(f, "display", bundle);
    return 0;
}

static int take_result(struct exec_frames *f, json_t *bundle)
{
    if (!is_bundle(bundle) || f->result->result || f->result->error)
        return -EBADMSG;
    if (!f->is_counted) {
        f->result->displays_cut = true;
        return 0;
    }
    f->is_kept = true;
    f->result->result = json_incref(bundle);
    tell(f, "result", bundle);
    return 0;
}

static int take_error(struct exec_frames *f, json_t *error)
{
    const char *name;
    const char *value;
    json_t *traceback;
    if (f->result->result || f->result->error ||
        json_unpack(error, "{s:s, s:s, s:o !}", "name", &name, "value", &value, "traceback",
            &traceback) < 0 ||
        !json_is_array(traceback))
        return -EBADMSG;
    for (size_t i = 0; i < json_array_size(traceback); i++) {
        if (!json_is_string(json_array_get(traceback, i)))
            return -EBADMSG;
    }
    if (!f->is_counted) {
        f->result->displays_cut = true;
        return 0;
    }
    f->is_kept = true;
    f->result->error = json_incref(error);
    if (!f->s->spec.image && str_eq(name, "ModuleNotFoundError"))
        hint_missing_module(&f->s->spec.runtime->run.missing, value, strlen(value),
            f->result->message, sizeof(f->result->message));
    tell(f, "error", error);
    return 0;
}

static int take_tool_call(struct exec_frames *f, json_t *call, size_t bytes)
{
    struct session *s = f->s;
    bool is_asked;
    (void)pthread_mutex_lock(&s->lock);
    int r = tools_call(s, call, bytes, &is_asked);
    (void)pthread_mutex_unlock(&s->lock);
    if (r == 0 && is_asked)
        tell(f, "tool_call", call);
    return r;
}

void frames_tell_approved(struct exec_frames *f)
{
    struct session *s = f->s;
    for (json_t *call = NULL;; json_decref(call)) {
        (void)pthread_mutex_lock(&s->lock);
        call = tools_paused_ms(s) ? tools_next_approved(s) : NULL;
        (void)pthread_mutex_unlock(&s->lock);
        if (!call)
            return;
        tell(f, "tool_call", call);
    }
}

static int take_done(struct exec_frames *f, json_t *done)
{
    struct exec_result *result = f->result;
    int ok;
    int interrupted;
    json_t *exit_code;
    json_t *cwd;
    json_int_t count;
    const char *state;
    if (json_unpack(done, "{s:b, s:o, s:o, s:I, s:b, s:s !}", "ok", &ok, "exit_code",
            &exit_code, "cwd", &cwd, "execution_count", &count, "interrupted", &interrupted,
            "state", &state) < 0 ||
        !json_is_string(cwd) || (!json_is_null(exit_code) && !json_is_integer(exit_code)))
        return -EBADMSG;
    session_set_cwd(f->s, done);
    result->status = ok ? RUN_OK : RUN_RUNTIME_ERROR;
    result->exited = json_is_integer(exit_code);
    result->exit_code = (int)json_integer_value(exit_code);
    result->execution_count = count;
    result->state_lost = str_eq(state, "lost");
    if (!str_eq(state, "kept"))
        (void)snprintf(result->message, sizeof(result->message), "%s",
            result->state_lost
                ? "the shell had to be replaced by a fresh one"
                : "the shell had to be replaced; it goes on with the state from before");
    f->is_done = true;
    return 0;
}

static int take(struct exec_frames *f, const struct channel_frame *frame, json_t *value)
{
    if (f->is_done && frame->kind != FRAME_FORK)
        return -EBADMSG;
    switch (frame->kind) {
    case FRAME_DISPLAY:
        return take_display(f, value, frame->len);
    case FRAME_RESULT:
        return take_result(f, value);
    case FRAME_ERROR:
        return take_error(f, value);
    case FRAME_TOOL_CALL:
        return take_tool_call(f, value, frame->len);
    case FRAME_INSTALL:
        f->is_kept = f->is_counted;
        return install_begin(f->s, value);
    case FRAME_FORK:
        return preview_answered(f->s, value, f->is_done);
    case FRAME_ATTEMPT:
        return preview_note_attempt(f->s->tools.preview, value);
    case FRAME_DONE:
        return take_done(f, value);
    default:
        return -EBADMSG;
    }
}

/* When there is no memory to keep a value, the value is left out and the code goes on. */
int frames_take(struct exec_frames *f, const struct channel_frame *frame)
{
    json_t *value = NULL;
    size_t weight;
    size_t at;
    struct err ignored = {0};
    if (json_read_weigh(frame->data, frame->len, &weight, &ignored) < 0)
        return -EBADMSG;
    f->is_kept = false;
    f->is_counted = purse_take(&f->result->purse, weight);
    if (!f->is_counted && weight > SMALL_WEIGHT) {
        f->result->displays_cut = true;
        return frame->kind == FRAME_DONE || frame->kind == FRAME_TOOL_CALL ||
                       frame->kind == FRAME_INSTALL
                   ? -EBADMSG
                   : 0;
    }
    int r = json_run_parse_any(frame->data, frame->len, &value, &at, &ignored);
    r = r < 0 ? -EBADMSG : take(f, frame, value);
    json_decref(value);
    if (f->is_counted && !f->is_kept)
        purse_give(&f->result->purse, weight);
    return r;
}
