/* SPDX-License-Identifier: Apache-2.0 */

/* Sends a directory of a session as tar or zip, made piece by piece while it is sent. Names
 * come from the box: a name that a request may not use does not get into the archive either,
 * because it is unpacked elsewhere. libarchive only writes here; it never parses hostile data.
 */

#include "session/files/transfer.h"

#include "base/alloc.h"
#include "base/str.h"
#include "state/state.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* CONTENT_MAX_GB bounds the content of one archive. ARCHIVE_COST is the memory in bytes that
 * libarchive is counted with. */
enum { CONTENT_MAX_GB = 16, ARCHIVE_COST = 1 << 20 };

struct session_archive {
    struct transfer *t;
    struct archive *archive;
    struct archive_entry *entry;
    struct buf *out;  /* output buffer of the current call */
    uint64_t left;    /* bytes of the current file that have not come yet */
    uint64_t content; /* bytes of all files so far */
    bool is_skipped;  /* the current file does not go into the archive */
    bool is_cut;      /* something was left out */
    bool is_over;
    char name[FILES_NAME_MAX + 1];
    char bytes[FILES_PIECE_MAX];
};

static la_ssize_t on_write(struct archive *archive, void *context, const void *data, size_t len)
{
    struct session_archive *a = context;
    if (!a->out) /* the archive is being discarded */
        return (la_ssize_t)len;
    return buf_append(a->out, data, len) < 0 ? -1 : (la_ssize_t)len;
}

static int open_writer(struct session_archive *a, enum archive_format format)
{
    a->archive = archive_write_new();
    a->entry = archive_entry_new();
    if (!a->archive || !a->entry)
        return -ENOMEM;
    int r = format == ARCHIVE_ZIP ? archive_write_set_format_zip(a->archive)
                                  : archive_write_set_format_gnutar(a->archive);
    /* Level 1: the caller waits, and other work needs the processors. */
    if (r == ARCHIVE_OK && format == ARCHIVE_ZIP)
        r = archive_write_set_options(a->archive, "zip:compression-level=1");
    (void)archive_write_set_bytes_per_block(a->archive, 0);
    (void)archive_write_set_bytes_in_last_block(a->archive, 1);
    if (r == ARCHIVE_OK)
        r = archive_write_open(a->archive, a, NULL, on_write, NULL);
    return r == ARCHIVE_OK ? 0 : -EIO;
}

int session_archive_open(struct session *s, const char *dir, enum archive_format format,
    struct session_archive **ret, struct err *err)
{
    const struct files_request request = {.op = FILES_LIST,
        .flags = FILES_RECURSIVE | FILES_CONTENT,
        .max_entries = FILES_ENTRIES_MAX};
    struct session_archive *a = xcalloc(1, sizeof(*a));
    int r = open_writer(a, format);
    if (r < 0)
        r = err_set(err, ERR_INTERNAL, -r, "cannot begin an archive: %s", strerror(-r));
    else
        r = transfer_open(s, &a->t, err);
    if (r == 0 && !purse_take(&a->t->purse, ARCHIVE_COST))
        r = state_full(err);
    if (r == 0 && (r = transfer_ask(a->t, request, dir)) == 0) {
        /* Report a missing directory before the reply begins. */
        struct files_record first;
        r = transfer_peek(a->t, &first);
        if (r == 0 && first.kind == FILES_END && first.error < 0 && first.error != -E2BIG)
            r = first.error;
    }
    if (r < 0 && a->t && err->code == ERR_NONE)
        r = transfer_error(a->t, r, err);
    if (r < 0) {
        session_archive_done(a);
        return r;
    }
    *ret = a;
    return 0;
}

static int write_header(struct session_archive *a, const char *name,
    const struct files_record *record, uint64_t size)
{
    bool is_dir = S_ISDIR(record->mode);
    archive_entry_clear(a->entry);
    archive_entry_copy_pathname(a->entry, name);
    archive_entry_set_filetype(a->entry, is_dir ? AE_IFDIR : AE_IFREG);
    archive_entry_set_perm(a->entry, is_dir || record->mode & 0111 ? 0755 : 0644);
    archive_entry_set_size(a->entry, (la_int64_t)size);
    archive_entry_set_mtime(a->entry, record->mtime_ns / 1000000000, 0);
    return archive_write_header(a->archive, a->entry) < ARCHIVE_WARN ? -EIO : 0;
}

static int on_entry(struct session_archive *a, const struct files_record *record)
{
    bool is_file = S_ISREG(record->mode);
    a->left = is_file ? record->size : 0;
    a->is_skipped = true;
    if (!is_file && !S_ISDIR(record->mode))
        return 0;
    if (str_name_problem(a->name, record->name_len) ||
        a->content + a->left > (uint64_t)CONTENT_MAX_GB << 30) {
        a->is_cut = true;
        return 0;
    }
    a->is_skipped = false;
    a->content += a->left;
    return write_header(a, a->name, record, a->left);
}

static int on_data(struct session_archive *a, const struct files_record *record)
{
    if (record->size > a->left)
        return -EBADMSG;
    int r = transfer_receive(a->t, a->bytes, (size_t)record->size);
    if (r < 0)
        return r;
    a->left -= record->size;
    if (a->is_skipped)
        return 0;
    return archive_write_data(a->archive, a->bytes, (size_t)record->size) < 0 ? -EIO : 0;
}

/* Incomplete content is reported in the archive itself: its reader sees nothing else. */
static int on_end(struct session_archive *a, const struct files_record *record)
{
    static const char text[] =
        "Something of this directory is not in this archive: it could not be read, changed "
        "meanwhile, lies too deep, has a name that is not allowed, or there was too much.\n";
    int r = 0;
    a->is_over = true;
    if (record->error == -E2BIG || a->is_cut) {
        const struct files_record note = {.mode = S_IFREG | 0644};
        r = write_header(a, ".hermes-incomplete", &note, sizeof(text) - 1);
        if (r == 0 && archive_write_data(a->archive, text, sizeof(text) - 1) < 0)
            r = -EIO;
    } else if (record->error < 0) {
        return record->error;
    }
    return r == 0 && archive_write_close(a->archive) != ARCHIVE_OK ? -EIO : r;
}

int session_archive_read(struct session_archive *a, struct buf *to)
{
    size_t before = to->len;
    int r = 0;
    a->out = to;
    while (r == 0 && !a->is_over && to->len == before) {
        struct files_record record;
        r = transfer_next(a->t, &record, a->name);
        if (r < 0)
            break;
        r = record.kind == FILES_ENTRY  ? on_entry(a, &record)
            : record.kind == FILES_DATA ? on_data(a, &record)
                                        : on_end(a, &record);
    }
    a->out = NULL;
    return r < 0 ? r : to->len > before;
}

void session_archive_done(struct session_archive *a)
{
    a->out = NULL;
    if (a->archive)
        (void)archive_write_fail(a->archive);
    (void)archive_write_free(a->archive);
    archive_entry_free(a->entry);
    transfer_done(a->t);
    free(a);
}
