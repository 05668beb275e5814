/* SPDX-License-Identifier: Apache-2.0 */

/* See host.h. Each simple command of a text is an effect of its own, so that rules and grants
 * are about commands. A text that is not understood, or has too many commands for a person to
 * read one by one, is one effect. */

#include "session/host.h"

#include "approval/approval.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "base/utf8.h"
#include "session/exec/internal.h"
#include "state/state.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    QUESTIONS_MAX = 8,    /* of one text; more become one question about the text */
    EFFECTS_ROOM = 512,   /* more than a text can have */
    SHOWN_MAX = 16 << 10, /* bytes of a text that is shown */
    EXPORTS_MAX = 1000,   /* exported variables that are remembered of one session */
    NAP_MS = 500,
};

static const char *const access_names[HOST_ACCESSES] = {
    [HOST_FILE] = "file", [HOST_TERMINAL] = "terminal", [HOST_STDIN] = "stdin"};

/* The effects of one text. */
struct asking {
    struct session *s;
    struct effect effects[EFFECTS_ROOM];
    bool is_once[EFFECTS_ROOM];
    size_t count;
    bool marks;      /* the text may declare integers or references */
    json_t *exports; /* a member for each variable that the text exports, or NULL */
    struct approval *approvals[QUESTIONS_MAX];
    size_t approval_count;
};

/* --- effects */

/* The variables that the session was made with: other variables may make the same command do
 * something else. A value may have line ends, but no NUL. Larger ones open no session. */
static json_t *environment(const struct session *s)
{
    char digest[EFFECT_DIGEST];
    cleanup_buf struct buf text;
    buf_init(&text, PLACE_WORDS_MAX);
    if (!s->env.count)
        return json_null();
    for (size_t i = 0; i < s->env.count; i++)
        (void)buf_append(&text, s->env.items[i], strlen(s->env.items[i]) + 1);
    digest_hex(text.data, text.len, digest);
    return json_sprintf("%zu variables, SHA-256 %s", s->env.count, digest);
}

/* Takes `fields`. The same effect again is one question, for once if one of the two is. */
static int add_effect(struct asking *a, json_t *fields, bool is_once, struct err *err)
{
    struct effect made = {0};
    (void)json_object_set_new(fields, "environment", environment(a->s));
    (void)json_object_set_new(fields, "backend", json_string(a->s->spec.place->name));
    int r = effect_make(EFFECT_HOST_EXEC, fields, &made, err);
    json_decref(fields);
    if (r < 0)
        return r;
    for (size_t i = 0; i < a->count; i++) {
        if (str_eq(a->effects[i].text, made.text)) {
            a->is_once[i] = a->is_once[i] || is_once;
            effect_done(&made);
            return 0;
        }
    }
    if (a->count == EFFECTS_ROOM) {
        effect_done(&made);
        return -E2BIG;
    }
    a->is_once[a->count] = is_once;
    a->effects[a->count++] = made;
    return 0;
}

static void forget_effects(struct asking *a)
{
    for (size_t i = 0; i < a->count; i++)
        effect_done(&a->effects[i]);
    a->count = 0;
}

static void asking_done(struct asking **a)
{
    forget_effects(*a);
    json_decref((*a)->exports);
    for (size_t i = 0; i < (*a)->approval_count; i++)
        approval_drop((*a)->approvals[i]);
    free(*a);
}

/* Where a command runs: the shell's directory and the changes of it in the same text. */
static json_t *directory(const struct session *s, const char *changes)
{
    cleanup_free char *text =
        xasprintf("%s%s%s", s->cwd ? s->cwd : "", changes[0] ? "; " : "", changes);
    return json_string(text);
}

/* Whether programs get the variable: the session was made with it, or a text exported it. */
static bool is_exported(const struct asking *a, const char *name)
{
    bool found = json_object_get(a->exports, name) || json_object_get(a->s->host_exports, name);
    for (size_t i = 0; i < a->s->env.count; i++) {
        size_t len = strlen(name);
        const char *one = a->s->env.items[i];
        found = found || (strncmp(one, name, len) == 0 && one[len] == '=');
    }
    return found;
}

static int add_command(struct asking *a, const struct shell_command *c, struct err *err)
{
    bool is_marked = a->marks || a->s->host_marked || (c->name && is_exported(a, c->name));
    if (c->assigning == SHELL_ASSIGNS_ONLY && !is_marked)
        return 0;
    json_t *fields = json_pack("{s:s, s:o, s:O, s:O, s:O, s:O, s:s?}", "action", "command",
        "cwd", directory(a->s, c->cwd), "argv", c->argv, "grant", c->grant, "redirections",
        c->redirections, "files", c->files, "danger", c->danger);
    /* A directory whose name looks like a `cd` would have the grants of another one. */
    bool is_odd = a->s->cwd && strstr(a->s->cwd, "; ");
    return add_effect(a, fields, c->is_once || is_odd || (c->assigning && is_marked), err);
}

/* A text as a person can read it. A long text is cut, and its digest is added. */
static char *shown(const char *text, size_t len)
{
    char digest[EFFECT_DIGEST];
    size_t part = len > SHOWN_MAX ? utf8_floor(text, SHOWN_MAX) : len;
    size_t good_len = 0;
    cleanup_free char *good = utf8_repair(text, part, &good_len);
    for (size_t i = 0; i < good_len; i++)
        good[i] = good[i] ? good[i] : ' ';
    if (part == len)
        return take_ptr(good);
    digest_hex(text, len, digest);
    return xasprintf("%s ... (%zu bytes, SHA-256 %s)", good, len, digest);
}

static int add_text(
    struct asking *a, const char *action, const char *text, size_t len, struct err *err)
{
    cleanup_free char *part = shown(text, len);
    return add_effect(a,
        json_pack(
            "{s:s, s:o, s:s}", "action", action, "cwd", directory(a->s, ""), "text", part),
        true, err);
}

/* --- asking */

static struct approval_asker asker_of(const struct session *s, bool is_once, const char *code)
{
    return (struct approval_asker){
        .owner = s->owner, .session = s->id, .is_once = is_once, .code = code};
}

static int ask_one(struct asking *a, size_t i, const char *code, struct err *err)
{
    const struct approval_asker asker = asker_of(a->s, a->is_once[i], code);
    struct approval *approval = NULL;
    int r = approvals_ask(a->s->all->state->approvals, &a->effects[i], &asker, &approval, err);
    if (r == 0)
        r = approval_verdict(approval, err);
    if (r == -EAGAIN)
        r = 0;
    if (approval && a->approval_count < QUESTIONS_MAX && approval_id(approval)[0])
        a->approvals[a->approval_count++] = approval;
    else
        approval_drop(approval);
    return r;
}

/* Asks about the effects that need an approval; denied effects come first. *ret_questions
 * instead of asking when there are too many. */
static int ask_all(struct asking *a, const char *code, bool *ret_too_many, struct err *err)
{
    struct approvals *approvals = a->s->all->state->approvals;
    enum ruling_kind kinds[EFFECTS_ROOM];
    size_t questions = 0;
    int r = 0;
    for (size_t i = 0; i < a->count; i++) {
        const struct approval_asker asker = asker_of(a->s, a->is_once[i], NULL);
        kinds[i] = approvals_ruling(approvals, &a->effects[i], &asker);
        if (kinds[i] == RULING_DENIED)
            return ask_one(a, i, code, err);
        questions += kinds[i] != RULING_ALLOWED;
    }
    *ret_too_many = questions > QUESTIONS_MAX;
    for (size_t i = 0; r == 0 && !*ret_too_many && i < a->count; i++)
        r = ask_one(a, i, code, err);
    return r;
}

/* Waits for the answers. Ends with the session, with an interrupt and with the caller. */
static int wait_all(struct asking *a, int cancel_fd, bool is_held, struct err *err)
{
    struct session *s = a->s;
    for (size_t i = 0; i < a->approval_count;) {
        struct pollfd fds[] = {{approval_fd(a->approvals[i]), POLLIN, 0},
            {cancel_fd, POLLIN, 0}, {is_held ? s->wake_fd : -1, POLLIN, 0}};
        int r = approval_verdict(a->approvals[i], err);
        if (r == 0) {
            i++;
            continue;
        }
        if (r != -EAGAIN)
            return r;
        (void)poll(fds, 3, NAP_MS);
        approvals_tick(s->all->state->approvals);
        if (fds[1].revents && !(fds[0].revents & POLLIN))
            return -ECANCELED;
        if (is_held && (r = place_look(s, err)) < 0)
            return r;
        if (!is_held && session_must_end(s))
            return err_set(err, ERR_CONFLICT, ECANCELED, "the session was ended meanwhile");
    }
    return 0;
}

static json_t *list_of(const struct asking *a)
{
    json_t *list = a->approval_count ? json_array() : NULL;
    for (size_t i = 0; i < a->approval_count; i++)
        (void)json_array_append_new(list, approval_json(a->approvals[i]));
    return list;
}

static int read_text(struct asking *a, const struct exec_spec *spec, int cancel_fd,
    bool *ret_reads_code, struct err *err)
{
    struct host_parser parser = {.s = a->s, .cancel_fd = cancel_fd, .err = err};
    struct shell_forms forms;
    struct err large = {0};
    int r = shell_read(
        spec->code, spec->code_len, a->s->cwd ? a->s->cwd : "", host_parse, &parser, &forms);
    if (parser.failed) {
        if (r == 0)
            shell_forms_done(&forms);
        return parser.failed;
    }
    *ret_reads_code = r < 0 || forms.reads_code;
    a->marks = r < 0 || forms.marks;
    a->exports = r < 0 ? NULL : json_incref(forms.exports);
    if (r == 0) {
        for (size_t i = 0; r == 0 && i < forms.count; i++)
            r = add_command(a, &forms.items[i], &large);
        shell_forms_done(&forms);
    }
    if (r == 0)
        return 0;
    forget_effects(a);
    return add_text(a, "text", spec->code, spec->code_len, err);
}

static int approve(
    struct asking *a, const struct exec_spec *spec, int cancel_fd, struct err *err)
{
    bool reads_code = false;
    bool too_many = false;
    cleanup_free char *code = shown(spec->code, spec->code_len);
    int r = read_text(a, spec, cancel_fd, &reads_code, err);
    if (r == 0)
        r = ask_all(a, code, &too_many, err);
    if (r == 0 && too_many) {
        forget_effects(a);
        r = add_text(a, "text", spec->code, spec->code_len, err);
        if (r == 0)
            r = ask_one(a, 0, code, err);
    }
    if (r == 0)
        r = wait_all(a, cancel_fd, true, err);
    if (r == 0 && reads_code && spec->stdin_size)
        r = host_approve_access(a->s, HOST_STDIN, "", cancel_fd, err);
    return r;
}

/* In a shell that exports too many variables each assignment needs approval. */
static void keep_exports(struct session *s, json_t *exports)
{
    if (exports && !s->host_exports)
        s->host_exports = json_object();
    if (exports)
        (void)json_object_update(s->host_exports, exports);
    if (json_object_size(s->host_exports) > EXPORTS_MAX) {
        s->host_marked = true;
        (void)json_object_clear(s->host_exports);
    }
}

int host_approve_exec(
    struct session *s, const struct exec_spec *spec, int cancel_fd, struct err *err)
{
    if (place_is_box(s->spec.place))
        return 0;
    CLEANUP(asking_done) struct asking *a = xcalloc(1, sizeof(*a));
    a->s = s;
    int r = approve(a, spec, cancel_fd, err);
    s->host_marked = s->host_marked || (r == 0 && a->marks);
    if (r == 0)
        keep_exports(s, a->exports);
    json_decref(s->approvals);
    s->approvals = list_of(a);
    return r;
}

/* --- once for a session */

int host_approve_access(struct session *s, enum host_access access, const char *name,
    int cancel_fd, struct err *err)
{
    if (place_is_box(s->spec.place) || s->host_access >> access & 1)
        return 0;
    CLEANUP(asking_done) struct asking *a = xcalloc(1, sizeof(*a));
    a->s = s;
    json_t *files = name[0] ? json_pack("[s]", name) : json_array();
    int r = add_effect(
        a, json_pack("{s:s, s:o}", "action", access_names[access], "files", files), false, err);
    if (r == 0)
        r = ask_one(a, 0, NULL, err);
    if (r == 0)
        r = wait_all(a, cancel_fd, false, err);
    if (r == 0)
        (void)atomic_fetch_or(&s->host_access, 1U << access);
    if (r == -ECANCELED && err->code == ERR_NONE)
        (void)err_set(err, ERR_CONFLICT, ECANCELED,
            "the client disconnected before the session could answer");
    return r;
}

int host_approve_env(struct session *s, int cancel_fd, struct err *err)
{
    if (place_is_box(s->spec.place))
        return 0;
    cleanup_free char *list = xstrdup("");
    for (size_t i = 0; i < s->env.count; i++) {
        const char *one = s->env.items[i];
        if (!shell_word_sets_special(one))
            continue;
        char *longer = xasprintf("%s%s%s", list, list[0] ? "\n" : "", one);
        free(list);
        list = longer;
    }
    if (!list[0])
        return 0;
    CLEANUP(asking_done) struct asking *a = xcalloc(1, sizeof(*a));
    a->s = s;
    int r = add_effect(a,
        json_pack(
            "{s:s, s:s, s:s}", "action", "environment", "text", list, "danger", "environment"),
        false, err);
    if (r == 0)
        r = ask_one(a, 0, NULL, err);
    return r < 0 ? r : wait_all(a, cancel_fd, false, err);
}
