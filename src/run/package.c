/* SPDX-License-Identifier: Apache-2.0 */

/* See package.h. A package is written once into a memfd and sealed. Large files go straight
 * into the memfd, so they are copied once. */

#include "run/package.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "base/utf8.h"
#include "proto/package.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

static const char zeros[8];

static size_t padding(size_t n)
{
    return (8 - n % 8) % 8;
}

/* Whether another file takes this name: one of a later list, or the program. */
static bool is_replaced(const struct package_spec *spec, size_t list, const char *name)
{
    if (spec->program && str_eq(name, "main") && !str_eq(spec->program, "main"))
        return true;
    for (size_t i = list + 1; i < PACKAGE_FILE_LISTS; i++) {
        if (spec->files[i] && run_files_find(spec->files[i], name))
            return true;
    }
    return false;
}

/* Calls fn for every file that goes into the box. */
static int each_file(const struct package_spec *spec,
    int (*fn)(void *context, const struct run_file *file), void *context)
{
    for (size_t i = 0; i < PACKAGE_FILE_LISTS; i++) {
        if (!spec->files[i])
            continue;
        for (size_t k = 0; k < spec->files[i]->count; k++) {
            const struct run_file *file = &spec->files[i]->items[k];
            bool skip = file->error || file->mounted || is_replaced(spec, i, file->name);
            int r = skip ? 0 : fn(context, file);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

struct weight {
    uint64_t bytes;
    uint64_t inodes;
    uint32_t files;
};

static int weigh_file(void *context, const struct run_file *file)
{
    struct weight *w = context;
    w->bytes += (file->size + 4095) / 4096 * 4096;
    w->inodes++;
    w->files++;
    for (const char *p = file->name; *p; p++)
        w->inodes += *p == '/'; /* at most one directory per slash */
    return 0;
}

void package_weigh(const struct package_spec *spec, uint64_t *ret_bytes, uint64_t *ret_inodes)
{
    struct weight w = {0};
    (void)each_file(spec, weigh_file, &w);
    *ret_bytes = w.bytes;
    *ret_inodes = w.inodes;
}

/* Small parts are collected up to this many bytes and written together: each write(2) costs
 * more than the copy. */
enum { GATHER_MAX = 16384 };

struct writer {
    int fd;
    const char *program;
    struct buf *small; /* parts to write before the next large one */
};

static int flush_small(struct writer *w)
{
    int r = fs_write_all(w->fd, w->small->data, w->small->len);
    buf_clear(w->small);
    return r;
}

static int write_part(struct writer *w, const void *data, size_t len)
{
    int r = w->small->len + len > GATHER_MAX ? flush_small(w) : 0;
    if (r < 0)
        return r;
    return len > GATHER_MAX ? fs_write_all(w->fd, data, len) : buf_append(w->small, data, len);
}

static int write_file(void *context, const struct run_file *file)
{
    struct writer *w = context;
    bool program = w->program && str_eq(file->name, w->program);
    const char *name = program ? "main" : file->name;
    struct package_file head = {.name_len = (uint32_t)strlen(name) + 1,
        .executable = file->executable || program,
        .size = file->size};
    struct iovec parts[] = {
        {&head, sizeof(head)},
        {(void *)name, head.name_len},
        {(void *)zeros, padding(head.name_len)},
        {file->content, file->size},
        {(void *)zeros, padding(file->size)},
    };
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        int r = write_part(w, parts[i].iov_base, parts[i].iov_len);
        if (r < 0)
            return r;
    }
    return 0;
}

static int append_strings(struct buf *b, const struct strv *v)
{
    for (size_t i = 0; v && i < v->count; i++) {
        int r = buf_append(b, v->items[i], strlen(v->items[i]) + 1);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Puts the header, the strings and padding into b. The caller writes b to the package. */
static int make_head(const struct package_spec *spec, struct buf *b)
{
    struct weight w = {0};
    (void)each_file(spec, weigh_file, &w);
    struct package_header head = {.magic = PACKAGE_MAGIC,
        .argc = (uint32_t)spec->argv->count,
        .envc = (uint32_t)spec->env->count,
        .globc = spec->globs ? (uint32_t)spec->globs->count : 0,
        .filec = w.files,
        .collect_max_files = spec->collect_max_files,
        .collect_max_bytes = spec->collect_max_bytes};
    if (head.argc > PACKAGE_MAX_ARGS || head.envc > PACKAGE_MAX_ENV ||
        head.globc > PACKAGE_MAX_GLOBS || head.filec > PACKAGE_MAX_FILES)
        return -E2BIG;
    int r = buf_append(b, &head, sizeof(head));
    if (r < 0 || (r = append_strings(b, spec->argv)) < 0 ||
        (r = append_strings(b, spec->env)) < 0 || (r = append_strings(b, spec->globs)) < 0)
        return r;
    head.strings_len = b->len - sizeof(head);
    memcpy(b->data, &head, sizeof(head));
    (void)buf_append(b, zeros, padding(b->len));
    return 0;
}

int package_write(const struct package_spec *spec, int *ret_fd, struct err *err)
{
    cleanup_close int fd = memfd_create("package", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return err_set(
            err, err_code_of(errno), errno, "cannot make a memfd: %s", strerror(errno));
    cleanup_buf struct buf small;
    buf_init(&small, 4 << 20);
    struct writer writer = {.fd = fd, .program = spec->program, .small = &small};
    int r = make_head(spec, &small);
    if (r == -E2BIG || r == -EMSGSIZE)
        return err_set(err, ERR_TOO_LARGE, E2BIG,
            "too many or too long arguments, variables, globs or files for one run");
    if (r == 0)
        r = each_file(spec, write_file, &writer);
    if (r == 0)
        r = flush_small(&writer);
    if (r < 0)
        return err_set(err, ERR_NO_SPACE, -r, "cannot write the package: %s", strerror(-r));
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
        return err_set(
            err, ERR_INTERNAL, errno, "cannot seal the package: %s", strerror(errno));
    *ret_fd = take_fd(&fd);
    return 0;
}

/* The longest name of a file, and the bytes that the purse is charged for a file's record. */
enum { NAME_MAX_BYTES = 4096, FILE_COST = 256 };

void collect_reader_init(struct collect_reader *reader, uint32_t max_files, uint64_t max_bytes)
{
    *reader = (struct collect_reader){.files_left = max_files, .bytes_left = max_bytes};
    buf_init(&reader->pending, max_bytes + NAME_MAX_BYTES + sizeof(struct collect_record));
}

void collect_reader_count(struct collect_reader *reader, struct buf_purse *purse)
{
    reader->purse = reader->pending.purse = purse;
}

void collect_reader_done(struct collect_reader *reader)
{
    buf_done(&reader->pending);
    run_files_done(&reader->files);
}

static const char *error_word(uint32_t kind)
{
    switch (kind) {
    case COLLECT_FILE:
        return NULL;
    case COLLECT_NOT_REGULAR:
        return "not_regular";
    case COLLECT_TOO_LARGE:
        return "too_large";
    default:
        return "unreadable";
    }
}

/* Allocates memory for a file. The purse is charged twice the size, because the file exists
 * twice once another box gets it, plus its record. */
static char *allocate(struct collect_reader *reader, size_t size)
{
    char *bytes = NULL;
    if (!reader->purse || reader->purse->take(reader->purse, 2 * size + FILE_COST))
        bytes = malloc(size + 1);
    reader->is_starved = reader->is_starved || !bytes;
    return bytes;
}

/* Stores one complete record. A file with an invalid name is listed as "bad_name", without
 * content. */
static int store(struct collect_reader *reader, const struct collect_record *record,
    const char *name, const char *content)
{
    const char *error = error_word(record->kind);
    cleanup_free char *shown = utf8_repair(name, record->name_len, NULL);
    if (!error && str_name_problem(name, record->name_len))
        error = "bad_name";
    size_t size = error ? 0 : record->size;
    char *copy = allocate(reader, size);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, content, size);
    copy[size] = '\0';
    run_files_add(&reader->files, shown, copy, size, record->executable && !error);
    struct run_file *file = &reader->files.items[reader->files.count - 1];
    file->error = error;
    reader->files_left--;
    reader->bytes_left -= size;
    return 0;
}

/* Takes one record off the front of pending. Returns the bytes used, 0 when the record is not
 * complete yet. */
static ssize_t take_record(struct collect_reader *reader, const char *data, size_t len)
{
    struct collect_record record;
    if (len < sizeof(record))
        return 0;
    memcpy(&record, data, sizeof(record));
    if (record.kind < COLLECT_FILE || record.kind > COLLECT_END ||
        record.name_len > NAME_MAX_BYTES)
        return -EBADMSG;
    if (record.kind == COLLECT_END) {
        reader->ended = true;
        reader->cut = record.error != 0;
        return sizeof(record);
    }
    uint64_t body = record.kind == COLLECT_FILE ? record.size : 0;
    if (body > reader->bytes_left || reader->files_left == 0 || record.name_len == 0)
        return -EBADMSG;
    size_t whole = sizeof(record) + record.name_len + body;
    if (len < whole)
        return 0;
    int r =
        store(reader, &record, data + sizeof(record), data + sizeof(record) + record.name_len);
    return r < 0 ? r : (ssize_t)whole;
}

int collect_reader_feed(struct collect_reader *reader, const char *data, size_t len)
{
    int r = buf_append(&reader->pending, data, len);
    reader->is_starved = reader->is_starved || r == -ENOMEM;
    if (r < 0)
        return -EBADMSG;
    size_t at = 0;
    while (!reader->ended) {
        ssize_t n = take_record(reader, reader->pending.data + at, reader->pending.len - at);
        if (n < 0)
            return (int)n;
        if (n == 0)
            break;
        at += (size_t)n;
    }
    if (at) { /* only after a whole record: moving a large file that still arrives would be
               * quadratic */
        memmove(reader->pending.data, reader->pending.data + at, reader->pending.len - at);
        reader->pending.len -= at;
    }
    return 0;
}
