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
-- Data for Name: idempotency_records; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.idempotency_records VALUES ('done', 1795548669408475, 'completed', 1, '\x01000000000000000000000000000000', '\x0100000000000000000000000000000000000000000000000000000000000000', true, false, false, 2, 1000000, 3153600000000000, 1795548669408474, 1795548669433997, 4949148669433997, 'POST /orders', '\x', '\x', '\x', 201, '\x74686520616e73776572', DEFAULT, DEFAULT);
INSERT INTO public.idempotency_records VALUES ('held', 1795548669434610, 'held', 1, '\x01000000000000000000000000000000', '\x0100000000000000000000000000000000000000000000000000000000000000', true, false, false, 0, 1000000, 3153600000000000, 1795548669434609, 1795548669435575, 9223372036854775807, 'POST /orders', '\x', '\x', '\x', 0, NULL, DEFAULT, DEFAULT);
INSERT INTO public.idempotency_records VALUES ('claimed', 1795548669494011, 'claimed', 1, '\x01000000000000000000000000000000', '\x0100000000000000000000000000000000000000000000000000000000000000', true, false, false, 2, 1000000, 3153600000000000, 1795548669494011, 1795548669494011, 9223372036854775807, 'POST /orders', '\x', '\x', '\x', 0, NULL, DEFAULT, DEFAULT);


--
-- Name: idempotency_records idempotency_records_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.idempotency_records
    ADD CONSTRAINT idempotency_records_pkey PRIMARY KEY (key);


--
-- Name: idempotency_records_in_doubt; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX idempotency_records_in_doubt ON public.idempotency_records USING btree (in_doubt, key) WHERE (in_doubt IS NOT NULL);


--
-- Name: idempotency_records_sweep; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX idempotency_records_sweep ON public.idempotency_records USING btree (sweep_hour);


--
-- PostgreSQL database dump complete
--


