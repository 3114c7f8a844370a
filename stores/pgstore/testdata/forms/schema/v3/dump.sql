--
-- PostgreSQL database dump
--


-- Dumped from database version 15.18 (Debian 15.18-0+deb12u1)
-- Dumped by pg_dump version 15.18 (Debian 15.18-0+deb12u1)

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: idempotency_records; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.idempotency_records (
    key text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL,
    state text NOT NULL COLLATE pg_catalog."C",
    attempt bigint NOT NULL,
    owner bytea NOT NULL,
    fingerprint bytea NOT NULL,
    hold boolean NOT NULL,
    hold_ends boolean NOT NULL,
    watched boolean NOT NULL,
    marks bigint NOT NULL,
    lease bigint NOT NULL,
    retention bigint NOT NULL,
    since bigint NOT NULL,
    touched bigint NOT NULL,
    expires bigint NOT NULL,
    label text NOT NULL,
    notes bytea NOT NULL,
    sealed_key bytea NOT NULL,
    steps bytea NOT NULL,
    status bigint NOT NULL,
    answer bytea,
    sweep_hour bigint GENERATED ALWAYS AS (((expires / '3600000000'::bigint) + 1)) STORED,
    in_doubt bigint GENERATED ALWAYS AS (
CASE
    WHEN ((state = 'held'::text) OR ((state = 'claimed'::text) AND hold)) THEN since
    ELSE NULL::bigint
END) STORED
)
WITH (fillfactor='80');


--
-- Name: TABLE idempotency_records; Type: COMMENT; Schema: public; Owner: -
--

COMMENT ON TABLE public.idempotency_records IS 'idempotency: schema 3, for programs of schema 1 or later';


--
-- Name: idempotency_keys; Type: VIEW; Schema: public; Owner: -
--

CREATE VIEW public.idempotency_keys AS
 SELECT r.key,
    r.label AS route,
        CASE
            WHEN (r.expires <= clock.now) THEN 'expired'::text
            WHEN (r.state <> 'claimed'::text) THEN r.state
            WHEN ((clock.now - r.touched) < r.lease) THEN 'running'::text
            WHEN r.hold THEN 'held'::text
            ELSE 'lapsed'::text
        END AS state,
    r.attempt,
    NULLIF(r.status, 0) AS status,
    to_timestamp((((r.since)::numeric / '1000000'::numeric))::double precision) AS since,
    to_timestamp((((r.touched)::numeric / '1000000'::numeric))::double precision) AS touched,
        CASE
            WHEN (r.state = 'claimed'::text) THEN to_timestamp(((((r.touched)::numeric / '1000000'::numeric) + ((r.lease)::numeric / '1000000'::numeric)))::double precision)
            ELSE NULL::timestamp with time zone
        END AS lease_ends,
        CASE
            WHEN (r.expires < '9223372036854775807'::bigint) THEN to_timestamp((((r.expires)::numeric / '1000000'::numeric))::double precision)
            ELSE NULL::timestamp with time zone
        END AS expires,
    r.watched,
    octet_length(r.answer) AS answer_bytes,
    octet_length(r.steps) AS steps_bytes,
    pg_column_size(r.*) AS stored_bytes
   FROM (public.idempotency_records r
     CROSS JOIN ( SELECT ((EXTRACT(epoch FROM clock_timestamp()) * (1000000)::numeric))::bigint AS now) clock);


--
-- Name: idempotency_records_tags; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.idempotency_records_tags (
    tag bytea NOT NULL,
    record text NOT NULL COLLATE pg_catalog."C",
    bound_to bytea NOT NULL,
    tagged bigint NOT NULL
);


--
-- Data for Name: idempotency_records; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.idempotency_records VALUES ('done', 1795548669975898, 'completed', 1, '\x01000000000000000000000000000000', '\x0100000000000000000000000000000000000000000000000000000000000000', true, false, false, 2, 1000000, 3153600000000000, 1795548669975897, 1795548669981322, 4949148669981322, 'POST /orders', '\x', '\x', '\x', 201, '\x74686520616e73776572', DEFAULT, DEFAULT);
INSERT INTO public.idempotency_records VALUES ('held', 1795548669981797, 'held', 1, '\x01000000000000000000000000000000', '\x0100000000000000000000000000000000000000000000000000000000000000', true, false, false, 0, 1000000, 3153600000000000, 1795548669981796, 1795548669984942, 9223372036854775807, 'POST /orders', '\x', '\x', '\x', 0, NULL, DEFAULT, DEFAULT);
INSERT INTO public.idempotency_records VALUES ('claimed', 1795548669985677, 'claimed', 1, '\x01000000000000000000000000000000', '\x0100000000000000000000000000000000000000000000000000000000000000', true, false, false, 2, 1000000, 3153600000000000, 1795548669985677, 1795548669985677, 9223372036854775807, 'POST /orders', '\x', '\x', '\x', 0, NULL, DEFAULT, DEFAULT);


--
-- Data for Name: idempotency_records_tags; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.idempotency_records_tags VALUES ('\x6f72646572206e756d6265722037372e', 'done', '\x0100000000000000000000000000000000000000000000000000000000000000', 1764300000000000);
INSERT INTO public.idempotency_records_tags VALUES ('\x6f72646572206e756d6265722037372e', 'held', '\x0100000000000000000000000000000000000000000000000000000000000000', 1764300000000000);


--
-- Name: idempotency_records idempotency_records_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.idempotency_records
    ADD CONSTRAINT idempotency_records_pkey PRIMARY KEY (key);


--
-- Name: idempotency_records_tags idempotency_records_tags_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.idempotency_records_tags
    ADD CONSTRAINT idempotency_records_tags_pkey PRIMARY KEY (tag, record);


--
-- Name: idempotency_records_in_doubt; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX idempotency_records_in_doubt ON public.idempotency_records USING btree (in_doubt, key) WHERE (in_doubt IS NOT NULL);


--
-- Name: idempotency_records_sweep; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX idempotency_records_sweep ON public.idempotency_records USING btree (sweep_hour);


--
-- Name: idempotency_records_tags_key; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX idempotency_records_tags_key ON public.idempotency_records_tags USING btree (record);


--
-- PostgreSQL database dump complete
--


