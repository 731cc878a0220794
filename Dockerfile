# The auditing half with grouping, Parquet, PostgreSQL and figures: no torch, no GPU. `docker compose run --rm diagevo memory show`
FROM python:3.13-slim AS build
WORKDIR /src
COPY . .
RUN python -m venv /opt/diagevo \
 && /opt/diagevo/bin/pip install --no-cache-dir --constraint constraints.txt '.[polars,postgres,report]'

FROM python:3.13-slim
COPY --from=build /opt/diagevo /opt/diagevo
RUN useradd --create-home --uid 1000 diagevo && install -d -o 1000 -m 700 /data
USER 1000
WORKDIR /data
ENV PATH=/opt/diagevo/bin:$PATH DIAGEVO_HOME=/data/runs
VOLUME /data
ENTRYPOINT ["diagevo"]
CMD ["--help"]
