/* SPDX-License-Identifier: Apache-2.0 */

/* Copies a session whose memory cannot be copied: makes a new session and copies the files.
 * They go through the server piece by piece, as a download and an upload. */

#include "session/internal.h"

#include "base/alloc.h"
#include "base/str.h"
#include "session/files/transfer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct copying {
    struct session *to;
    struct transfer *from;
    struct transfer *file; /* being written now, or NULL */
    uint64_t left;         /* bytes of the current file that have not come yet */
    bool is_whole;
    char name[FILES_NAME_MAX + 1];
    char bytes[FILES_PIECE_MAX];
};

static int finish_file(struct copying *c, struct err *err)
{
    bool is_new;
    int r = c->file ? transfer_commit(c->file, &is_new, err) : 0;
    transfer_done(c->file);
    c->file = NULL;
    return r;
}

static int on_entry(struct copying *c, const struct files_record *record, struct err *err)
{
    int r = finish_file(c, err);
    c->left = S_ISREG(record->mode) ? record->size : 0;
    if (r < 0 || S_ISDIR(record->mode))
        return r;
    if (!S_ISREG(record->mode) || str_name_problem(c->name, record->name_len)) {
        c->is_whole = false;
        return 0;
    }
    /* Size unknown: the file may become shorter while it is read. */
    return session_file_put(c->to, c->name, UINT64_MAX, record->mode & 0111, &c->file, err);
}

static int on_data(struct copying *c, const struct files_record *record, struct err *err)
{
    if (record->size > c->left)
        return -EBADMSG;
    c->left -= record->size;
    int r = transfer_receive(c->from, c->bytes, (size_t)record->size);
    return r < 0 || !c->file ? r : transfer_write(c->file, c->bytes, (size_t)record->size, err);
}

/* Takes one record: 1 after the last one. */
static int take(struct copying *c, struct err *err)
{
    struct files_record record;
    int r = transfer_next(c->from, &record, c->name);
    if (r < 0)
        return r;
    if (record.kind == FILES_ENTRY)
        return on_entry(c, &record, err);
    if (record.kind == FILES_DATA)
        return on_data(c, &record, err);
    if (record.error < 0 && record.error != -E2BIG)
        return record.error;
    c->is_whole = c->is_whole && record.error == 0;
    r = finish_file(c, err);
    return r < 0 ? r : 1;
}

static int copy_files(
    struct session *from, struct session *to, bool *ret_is_whole, struct err *err)
{
    const struct files_request request = {.op = FILES_LIST,
        .flags = FILES_RECURSIVE | FILES_CONTENT,
        .max_entries = FILES_ENTRIES_MAX};
    struct copying *c = xcalloc(1, sizeof(*c));
    c->to = to;
    c->is_whole = true;
    int r = transfer_open(from, &c->from, err);
    if (r == 0 && (r = transfer_ask(c->from, request, "")) == 0) {
        while ((r = session_must_end(to) ? -ECANCELED : take(c, err)) == 0)
            ;
    }
    if (r < 0 && c->from && err->code == ERR_NONE)
        r = transfer_error(c->from, r, err);
    *ret_is_whole = *ret_is_whole && c->is_whole;
    transfer_done(c->file);
    transfer_done(c->from);
    free(c);
    return r < 0 ? r : 0;
}

int session_copy_fresh(
    struct session *s, int cancel_fd, struct session **ret, bool *ret_is_whole, struct err *err)
{
    struct session *copy = NULL;
    struct session_spec spec = {.runtime = s->spec.runtime,
        .limits = s->spec.limits,
        .idle_timeout_s = s->idle_ms / 1000};
    strv_add_all(&spec.env, &s->env);
    spec.network = session_network_policy(s->network);
    spec.image = run_image_copy(s->spec.image);
    int r = session_create(s->all, &spec, s->owner_index, cancel_fd, &copy, err);
    session_spec_done(&spec);
    if (r < 0)
        return r;
    (void)pthread_mutex_lock(&copy->lock);
    copy->names_cpu = s->names_cpu;
    copy->is_plain = s->is_plain;
    copy->has_foreign_text = s->has_foreign_text;
    copy->end_ms = s->end_ms;
    memcpy(copy->origin, s->id, sizeof(copy->origin));
    (void)pthread_mutex_unlock(&copy->lock);
    r = copy_files(s, copy, ret_is_whole, err);
    if (r < 0) {
        session_delete(copy);
        session_unref(copy);
        return r;
    }
    *ret = copy;
    return 0;
}
