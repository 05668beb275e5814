/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Writing a job (proto/package.h) and reading what the collector sends back. */

#include "base/err.h"
#include "run/run.h"

enum { JOB_FILE_LISTS = 4 };

/* Files of a job, in order; a later list replaces earlier files of the same name. */
struct job_spec {
    const struct strv *argv;
    const struct strv *env;
    const struct strv *globs;                      /* or NULL */
    const struct run_files *files[JOB_FILE_LISTS]; /* each may be NULL */
    uint32_t collect_max_files;
    uint64_t collect_max_bytes;
    const char *program; /* this file is written as an executable named "main", or NULL */
};

/* Returns a sealed memfd in *ret_fd. */
int job_write(const struct job_spec *spec, int *ret_fd, struct err *err);

/* Bytes and inodes that the files need in the box. */
void job_weigh(const struct job_spec *spec, uint64_t *ret_bytes, uint64_t *ret_inodes);

/* The collector's records, fed as they arrive. Hostile: every length is bounded by the caps. */
struct collect_reader {
    struct buf pending;
    struct run_files files;
    uint64_t bytes_left;
    uint32_t files_left;
    bool ended;
    bool cut; /* a cap was reached */
    struct buf_purse *purse;
    bool is_starved; /* there was no memory for a file */
};
void collect_reader_init(struct collect_reader *reader, uint32_t max_files, uint64_t max_bytes);
/* Has it count what it keeps; it is not given back, so the purse is the run's own. */
void collect_reader_count(struct collect_reader *reader, struct buf_purse *purse);
void collect_reader_done(struct collect_reader *reader);

/* Takes the next bytes; -EBADMSG when they make no sense (the rest is ignored then). */
int collect_reader_feed(struct collect_reader *reader, const char *data, size_t len);
