# Both commands of the README, for those who evaluate artifacts:
#   docker build -t fledge . && docker run --rm -v "$PWD/runs:/fledge/runs" fledge
#   docker run --rm fledge pytest
FROM python:3.11-slim
WORKDIR /fledge
COPY . .
RUN pip install --no-cache-dir -e ".[all]"
CMD ["python", "examples/compare.py"]
